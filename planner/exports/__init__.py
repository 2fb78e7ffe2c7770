"""A plan as the launch of another framework: its settings, or every reason why it has none."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
