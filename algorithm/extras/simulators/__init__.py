"""Simulators that step many environments at once, and a check that their transitions are stored correctly."""
