"""Simulators that step many environments at once, and the proof of what is stored of any such one."""
