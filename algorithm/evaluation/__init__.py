"""A trained agent at work: evaluation, inference, films, recordings."""
