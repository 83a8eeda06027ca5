"""A learner and any number of actors in processes of their own, over sockets. Imports ``algorithm``."""
