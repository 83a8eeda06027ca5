"""Kinds of action parts: one object each for actions, ratios and distributions. Losses are a family's."""
