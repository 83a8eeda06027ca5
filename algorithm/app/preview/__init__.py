"""Cost of a training before it begins (``--dry_run``)."""
