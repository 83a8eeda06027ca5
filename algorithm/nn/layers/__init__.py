"""Layers and encoders that networks are made of."""
