"""The single controller: Ray processes on a plan's devices, and the program that calls them."""
