"""A learner and any number of actors in processes of their own, over sockets. Imports ``algorithm``."""

import os

# Read when gRPC is imported. Its core writes a line to the terminal for much of what a stranger may send;
# what matters is counted and logged by ``ds.records``.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
