"""What is decided of a configuration when a run starts: by its environments' spaces, or by measuring."""
