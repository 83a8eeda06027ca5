"""Data sets of Minari as demonstrations."""
