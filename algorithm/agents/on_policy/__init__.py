"""Families that learn from what the present policy has just done: PPO, A2C, A3C and ACKTR."""
