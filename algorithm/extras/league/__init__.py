"""Self-play against past policies, with ratings, and matches between runs."""
