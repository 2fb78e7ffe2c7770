"""What published studies found, predicted: `make reproduce` writes reproduction.md of docs/."""
