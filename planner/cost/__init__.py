"""The cost model: what every call of a plan takes, in seconds and bytes, without any search."""
