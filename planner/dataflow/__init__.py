"""An RL algorithm as a graph of calls: built in, traced from a program, or written out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
