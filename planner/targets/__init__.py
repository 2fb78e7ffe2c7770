"""Targets: what can run a plan, as tables of capabilities that search, check and executor read."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
