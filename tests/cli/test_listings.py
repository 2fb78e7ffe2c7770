"""What a spec can name, searched by how people write it."""

import json

import pytest

from tests.cli.commands import call


@pytest.mark.parametrize(
    ("listing", "wanted", "first"),
    [
        ("models", "Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b-2507"),
        ("models", "glm-5", "glm-5"),
        ("gpus", "H100", "h100-80gb-sxm"),
        ("gpus", "mi300", "mi300x-192gb"),
    ],
)
def test_a_name_finds_what_has_it(capsys, listing, wanted, first):
    code, out, _ = call(capsys, listing, wanted, "--json")
    everything = json.loads(call(capsys, listing, "--json")[1])
    found = [each["name"] for each in json.loads(out)]
    assert code == 0
    assert found[0] == first
    assert 0 < len(found) < len(everything)


@pytest.mark.parametrize("listing", ["models", "gpus"])
def test_a_name_that_none_has_is_refused(capsys, listing):
    code, out, err = call(capsys, listing, "no-such-thing")
    assert (code, out) == (2, "")
    assert "'no-such-thing'" in err
    assert f"automap {listing} lists all" in err
