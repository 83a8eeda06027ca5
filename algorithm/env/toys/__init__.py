"""Small environments with a known optimum."""
