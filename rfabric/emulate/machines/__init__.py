"""One emulated fabric on several machines."""
