"""``python -m tests.messages``: write the golden file anew."""

from __future__ import annotations

from tests.messages import GOLDEN, areas, rendered

GOLDEN.write_text("".join(map(rendered, areas())), "utf-8")
