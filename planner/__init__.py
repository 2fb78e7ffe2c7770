"""The planner's door: from a job spec to a placement plan, and every question about one.

`__init__.pyi` lists its names. Service, executor and profiler import these, and the types that the
rooms `spec`, `plan`, `catalogue`, `dataflow`, `job`, `profiles`, `explanation`, `replanning`,
`simulation`, `studies`, `runs`, `validation`, `cost` and the module `errors` export; nothing
behind them. A name is imported when it is first asked for: reading a spec needs no solver.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
