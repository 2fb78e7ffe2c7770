from .description import ENGINES as ENGINES
from .description import Framework as Framework
from .description import Limit as Limit
from .description import Setting as Setting
from .description import framework as framework
from .description import framework_names as framework_names
