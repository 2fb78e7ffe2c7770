from .result import Iterations as Iterations
from .result import Spread as Spread
from .timeline import Occurrence as Occurrence
from .timeline import host_lanes as host_lanes
from .timeline import rows as rows
from .trace_events import HOST as HOST
from .trace_events import chrome_trace as chrome_trace
