"""Launches of other frameworks as jobs and placements: read as text, nothing is run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
