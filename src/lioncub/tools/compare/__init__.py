"""Comparison of methods x links x hosts on one training job, with all other settings equal."""
