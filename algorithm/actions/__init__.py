"""Kinds of action parts: one object each acts, scores and gives its distribution. Losses are a family's."""
