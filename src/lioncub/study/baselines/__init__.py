"""The methods that one-bit votes are compared with, each written from its paper."""
