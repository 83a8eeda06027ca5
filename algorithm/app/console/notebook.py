"""Console of a notebook: everything that a run shows is one output of its cell, updated in place."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console as Terminal
from rich.console import RenderableType
from rich.jupyter import JUPYTER_HTML_FORMAT
from rich.panel import Panel
from typing_extensions import override

from algorithm.app.console.live import MAX_WIDTH, LiveConsole


class NotebookConsole(LiveConsole):
    """The panel below all texts so far, as HTML and as plain text."""

    def __init__(self) -> None:
        from IPython.display import DisplayHandle  # only notebooks have it

        super().__init__(io.StringIO(), width=MAX_WIDTH)
        self._handle: Any = DisplayHandle()  # type: ignore[no-untyped-call]  # IPython's own
        self._shown = False
        self._texts: list[dict[str, str]] = []
        self._last: dict[str, str] | None = None  # the panel

    @override
    def _print(self, what: RenderableType, *, soft_wrap: bool = False) -> None:
        self._texts.append(self._rendered(what, soft_wrap=soft_wrap))
        self._show()

    @override
    def _redraw(self, panel: Panel) -> None:
        self._last = self._rendered(panel)
        self._show()

    @override
    def _leave_panel(self) -> None:
        if self._last is not None:
            self._texts.append(self._last)
            self._last = None

    def _rendered(self, what: RenderableType, *, soft_wrap: bool = False) -> dict[str, str]:
        """Render a text or panel as HTML and as plain text, by media type."""
        paper = Terminal(
            file=io.StringIO(),
            width=MAX_WIDTH,
            force_jupyter=False,
            record=True,
            highlight=False,
            color_system="truecolor",
        )
        paper.print(what, soft_wrap=soft_wrap)
        text = paper.export_text(clear=False)
        return {"text/html": paper.export_html(code_format="{code}", inline_styles=True), "text/plain": text}

    def _show(self) -> None:
        """Display all texts and the panel, in place of the former output."""
        parts = [*self._texts, *([self._last] if self._last else [])]
        html, text = ("".join(part[kind] for part in parts) for kind in ("text/html", "text/plain"))
        output = {"text/html": JUPYTER_HTML_FORMAT.format(code=html), "text/plain": text}
        if self._shown:
            self._handle.update(output, raw=True)
        else:
            self._handle.display(output, raw=True)
            self._shown = True
