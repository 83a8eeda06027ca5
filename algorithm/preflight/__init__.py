"""Before a training: what would go wrong (``--check``), and what it would cost (``--dry_run``)."""
