"""Robots: limits of actions, an emergency stop, interventions, and a learned reward."""
