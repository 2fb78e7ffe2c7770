"""Units of memory. All else is in base units: seconds, bytes, FLOPs."""

MIB = 2**20
GIB = 2**30
