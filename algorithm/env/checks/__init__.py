"""What could keep an environment from being learned: one small function for each fault."""
