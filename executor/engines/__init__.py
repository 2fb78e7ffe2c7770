"""Training engines: a role's model, sharded over the ranks of its worker group."""
