"""Progress of a run on a terminal, in a pipe and in the log. Loads neither torch nor numpy."""
