"""``python -m tests.messages``: write the golden file anew."""

import sys

from tests.messages import GOLDEN, areas, rendered

sys.argv = ["main.py"]  # commands are shown as if it had been typed
GOLDEN.write_text("".join(map(rendered, areas())), "utf-8")
