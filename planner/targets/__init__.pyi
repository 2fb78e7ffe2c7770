from .capabilities import DIMENSIONS as DIMENSIONS
from .capabilities import RolloutCapabilities as RolloutCapabilities
from .capabilities import TrainingCapabilities as TrainingCapabilities
from .tables import ANY as ANY
from .tables import AUTOMAP as AUTOMAP
from .tables import TARGETS as TARGETS
from .target import ModelEngines as ModelEngines
from .target import Target as Target
