"""Demonstrations: episodes read from files, and checked against an agent's observations and actions."""
