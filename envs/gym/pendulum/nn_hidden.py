"""Networks for Pendulum without the velocity: the defaults, since the state in ``nn.py`` has no memory.

Whatever a model file leaves out is a default, and the default representation is the one of ``seq_encoder``.
"""
