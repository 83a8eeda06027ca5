"""Commands before a training: its cost (``--dry_run``) and its recordings (``--demos``)."""
