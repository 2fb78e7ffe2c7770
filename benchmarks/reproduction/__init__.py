"""What published studies found, predicted: `make reproduce` writes docs/reproduction.md."""
