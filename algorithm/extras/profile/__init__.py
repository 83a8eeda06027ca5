"""Profile of a training's time, for ``--profile``."""
