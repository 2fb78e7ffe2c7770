"""Measures operators, layers and collectives on real devices and writes planner profile tables."""
