"""The transport of bytes between workers, and the detection of lost peers."""
