"""Whether a running plan should be kept, once seconds are measured or the cluster has changed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
