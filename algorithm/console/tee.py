"""Several consoles as one."""

from __future__ import annotations

from algorithm.console.base import Console, Evaluation, Progress, Rows, Sections


class Tee(Console):
    """Several consoles as one: the screen and the log."""

    def __init__(self, *consoles: Console) -> None:
        self._consoles = consoles

    def start(self, sections: Sections) -> None:
        """See :class:`~algorithm.console.base.Console`."""
        for console in self._consoles:
            console.start(sections)

    def due(self) -> bool:
        """See :class:`~algorithm.console.base.Console`."""
        return any(console.due() for console in self._consoles)

    def progress(self, progress: Progress) -> None:
        """See :class:`~algorithm.console.base.Console`."""
        for console in self._consoles:
            console.progress(progress)

    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        """See :class:`~algorithm.console.base.Console`."""
        for console in self._consoles:
            console.evaluation(evaluation, best=best)

    def message(self, text: str) -> None:
        """See :class:`~algorithm.console.base.Console`."""
        for console in self._consoles:
            console.message(text)

    def command(self, purpose: str, command: str) -> None:
        """See :class:`~algorithm.console.base.Console`."""
        for console in self._consoles:
            console.command(purpose, command)

    def warn(self, text: str) -> None:
        """See :class:`~algorithm.console.base.Console`."""
        for console in self._consoles:
            console.warn(text)

    def finish(self, summary: Rows, commands: Rows) -> None:
        """See :class:`~algorithm.console.base.Console`."""
        for console in self._consoles:
            console.finish(summary, commands)

    def close(self) -> None:
        """See :class:`~algorithm.console.base.Console`."""
        for console in self._consoles:
            console.close()
