"""``lioncub live``: a job's events in the terminal."""
