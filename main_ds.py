"""Distributed training: learner, actors, evolver. Not available in this version; the command line is read."""

from algorithm.config.cli import parse_distributed

if __name__ == "__main__":
    parse_distributed()
