"""Decisions on a configuration when a run starts: by its environments' spaces, or by measuring."""
