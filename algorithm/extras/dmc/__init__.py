"""Tasks of the DeepMind Control suite."""
