"""The comparison people come for: methods x links x hosts on one training job, everything else equal."""
