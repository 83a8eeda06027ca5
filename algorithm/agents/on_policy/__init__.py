"""Families that learn from rollouts of the present policy: PPO, A2C, A3C and ACKTR."""
