"""Tests of several agents: games, self-play and PettingZoo."""
