"""Questions that several plans answer: a Pareto front, what-if, what makes a job possible."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
