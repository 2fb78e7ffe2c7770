"""Frameworks that others run: which decisions of a plan each version knows, under which keys."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
