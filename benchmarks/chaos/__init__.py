"""The service under random faults: nothing lost, nothing done twice, nothing left over."""
