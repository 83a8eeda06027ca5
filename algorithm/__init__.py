"""Soft Actor-Critic and its siblings, driven by a configuration."""
