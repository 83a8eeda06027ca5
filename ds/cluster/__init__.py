"""Learner and actors on a Ray cluster: placed, supervised, restarted. Ray carries orders, sockets the data."""
