"""What runs tell: iterations against the plan, drift, and the corrections they teach."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
