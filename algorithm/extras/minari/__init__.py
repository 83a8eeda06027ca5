"""Data sets of Minari: read, and written by ``--record``."""
