from .cluster_state import changed_spec as changed_spec
from .result import Restart as Restart
