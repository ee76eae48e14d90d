"""Does it learn as well? Many workers of one training run inside one process, methods beside one another."""
