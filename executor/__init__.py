"""Runs a plan on Ray with real training and generation engines and fills a run report."""
