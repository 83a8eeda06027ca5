"""Learner and actors on a Ray cluster: placed, supervised, restarted. Data goes over sockets, not Ray."""
