"""Training with a learner and any number of actors: ``python main_ds.py gym/pendulum learner``."""

from __future__ import annotations

from ds.command import main, run

__all__ = ["main"]

if __name__ == "__main__":
    run()
