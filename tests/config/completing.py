"""Answers a shell would get: ``[[program, line], …]`` as JSON in, words and loaded modules out.

Each line is answered by a fork of this process, in which the program has been imported already.
"""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

import algorithm.app.command
import ds.command

RUN = {"asac": algorithm.app.command.run, "asac-ds": ds.command.run}
HEAVY = ("torch", "gymnasium", "matplotlib", "grpc")


def answer(program: str, line: str, words: int, facts: int) -> NoReturn:
    """Answer into one pipe as the program does, and into another say how it ended."""
    leave = os._exit

    def left(code: int) -> NoReturn:
        said = {"code": code, "loaded": [name for name in HEAVY if name in sys.modules]}
        os.write(facts, json.dumps(said).encode())
        leave(0)

    os._exit = left
    os.dup2(words, 8)
    os.environ.update(
        _ARGCOMPLETE="1",
        _ARGCOMPLETE_IFS="\n",
        _ARGCOMPLETE_SHELL="bash",
        _ARGCOMPLETE_SUPPRESS_SPACE="1",
        _ARGCOMPLETE_COMP_WORDBREAKS=" \t\n\"'><=;|&(:",
        COMP_LINE=line,
        COMP_POINT=str(len(line)),
    )
    sys.argv = [program]
    RUN[program]()


def answered(program: str, line: str) -> dict[str, object]:
    """Return the words, the exit code and which heavy modules were loaded."""
    words, facts = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        answer(program, line, words[1], facts[1])
    os.close(words[1])
    os.close(facts[1])
    with os.fdopen(words[0]) as told, os.fdopen(facts[0]) as said:
        found = {"words": [word for word in told.read().split("\n") if word], **json.load(said)}
    os.waitpid(child, 0)
    return found


if __name__ == "__main__":
    json.dump([answered(*asked) for asked in json.load(sys.stdin)], sys.stdout)
