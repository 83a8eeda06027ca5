"""Default networks: of agents, and of extensions where a task's ``nn.py`` has none of its own."""
