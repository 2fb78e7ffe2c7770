"""The cost model: what every call of a plan takes, in seconds and bytes, without any search.

The door names what measuring a machine needs to know of it: shapes, rooflines, layers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
