from .result import Alternative as Alternative
from .result import Part as Part
from .result import Regret as Regret
from .result import Sensitivity as Sensitivity
from .result import Threshold as Threshold
