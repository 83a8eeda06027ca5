"""Episodes of somebody else, read from files and checked against what an agent sees and does."""
