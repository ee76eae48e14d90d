"""Training data: found on this machine, or fetched when asked for, and always the published bytes."""
