"""Several agents: PettingZoo's environments, and self-play with ratings."""
