"""The mathematics of the algorithms: rewards, advantages and losses, on plain tensors."""
