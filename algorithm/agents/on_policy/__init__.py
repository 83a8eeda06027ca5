"""Families that learn from what the present policy has just done: PPO and A2C."""
