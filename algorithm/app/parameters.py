"""Parameters of environments as rows of a table, and the lessons that a command line names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from algorithm.config.schema import Config
from algorithm.core.errors import UsageError
from algorithm.env.parameters.config import (
    EnvParameters,
    last_lessons,
)
from algorithm.run.state import lessons_of
from algorithm.store.checkpoints.checkpoint import Checkpoint


def named_lessons(
    parameters: EnvParameters, words: Sequence[str], usual: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return parameter -> lesson for ``--lesson``: the lessons that words name, else the usual ones.

    words: ``NAME``, if only one curriculum has a lesson of that name, or ``PARAMETER=NAME``
    usual: None for the last ones
    Raises UsageError for a lesson that does not exist.
    """
    chosen = {**last_lessons(parameters), **(usual or {})}
    if words and not chosen:
        raise UsageError(
            "this run has no lessons",
            where=",".join(words),
            why="none of its environment_parameters has a curriculum",
            fix="leave it out",
        )
    for word in words:
        name, _, lesson = word.rpartition("=")
        having = [
            parameter
            for parameter in chosen
            if name in ("", parameter) and lesson in parameters[parameter].lessons
        ]
        if len(having) != 1:
            raise _unknown(parameters, word, having)
        chosen[having[0]] = lesson
    return chosen


def played_lessons(config: Config, words: Sequence[str], saved: Checkpoint | None = None) -> dict[str, str]:
    """Return parameter -> lesson to play.

    words: see :func:`named_lessons`
    saved: checkpoint that plays, whose lessons count with ``eval_config.lesson: current``
    """
    return named_lessons(config.parameters, words, None if saved is None else lessons_of(config, saved))


def _unknown(parameters: EnvParameters, word: str, having: Sequence[str]) -> UsageError:
    """Return the error for a lesson that no curriculum has, or several have."""
    known = [f"{name}={lesson}" for name, text in parameters.items() for lesson in text.lessons]
    close = get_close_matches(word, [*known, *(text.partition("=")[2] for text in known)], n=1)
    return UsageError(
        f"{word!r} is a lesson of {' and of '.join(having)}" if having else f"there is no lesson {word!r}",
        where=word,
        why=f"the run has {', '.join(known)}",
        fix=f"did you mean {close[0]}?" if close and not having else "name one of them as PARAMETER=LESSON",
    )
