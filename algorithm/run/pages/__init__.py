"""What a run came to, as pages and pictures."""
