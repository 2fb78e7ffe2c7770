"""Why no placement fits, in bytes and seconds, and what would change that."""
