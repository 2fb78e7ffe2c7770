"""Measured operator tables: folders of them, what is in them, and what runs have corrected."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
