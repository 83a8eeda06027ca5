"""Commands before a training: its obstacles (``--check``) and its cost (``--dry_run``)."""
