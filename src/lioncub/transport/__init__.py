"""Who moves bytes between workers, and who notices that a peer is gone."""
