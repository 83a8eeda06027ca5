"""``main.py`` and ``main_ds.py`` with one more family: the one entry in the registry."""

import sys

from algorithm.agents.registry import FAMILIES

FAMILIES["BANDIT"] = "tests.bandit"

if __name__ == "__main__":
    program, *flags = sys.argv[1:]
    if program == "main_ds.py":
        from main_ds import main
    else:
        from main import main
    sys.exit(main(flags))
