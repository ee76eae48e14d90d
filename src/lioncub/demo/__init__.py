"""A demonstration: four worker processes train a byte-level GPT three ways."""
