"""What a message looks like, and what workers conclude from the messages of all."""
