"""Training or running of an agent: ``python main.py gym/pendulum``. See ``python main.py --help``."""

from __future__ import annotations

from algorithm.app.command import main, run

__all__ = ["main"]

if __name__ == "__main__":
    run()
