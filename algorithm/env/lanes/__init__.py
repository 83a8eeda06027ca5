"""Environments that step many copies at once, as tensors on one device."""
