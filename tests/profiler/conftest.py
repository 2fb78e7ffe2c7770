"""These tests need torch: `make executor` installs it."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["*test_*.py"]
