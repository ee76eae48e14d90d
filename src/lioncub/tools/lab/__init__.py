"""A slow network on one machine: hosts as network namespaces on a bridge, every link shaped to a rate."""
