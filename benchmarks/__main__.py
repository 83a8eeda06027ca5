"""Ask questions and fill the tables of the documentation: ``python -m benchmarks updates bare``."""

from __future__ import annotations

import inspect
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args, get_type_hints

from benchmarks import tables
from benchmarks.harness import PEER_PYTHON, QUESTIONS, RESULTS, RUNS, Ask, Bench, find, measure
from benchmarks.rendering import TABLES
from benchmarks.worker import WorkerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask what the command line names; returns the exit code."""
    options, questions = parse(arguments)
    with tempfile.TemporaryDirectory() as trial:
        folder, runs = (Path(trial), Path(trial) / "runs") if options.smoke else (options.results, RUNS)
        bench = Bench(options.sb3_python, smoke=options.smoke, runs=runs, results=folder)
        for name, (question, own) in questions.items():
            print(f"== {name}", flush=True)
            try:
                measure(question, bench, folder / f"{name}.json", **own)
            except WorkerError as error:
                print(f"benchmark stopped: {error}", file=sys.stderr)
                return 1
            for table in (one for one in TABLES if one.split("-")[0] == name):
                print(f"\n{table}\n\n{tables.render(table, folder)}", flush=True)
    if folder == RESULTS:
        tables.main(["--write"])
    return 0


def parse(arguments: Sequence[str] | None) -> tuple[Namespace, dict[str, tuple[Ask, dict[str, Any]]]]:
    """The command line: what holds for all, and each question with its own options."""
    words = sys.argv[1:] if arguments is None else arguments
    first = list(takewhile(lambda word: not word.startswith("-"), words))  # `--sides bare` asks nothing
    found = {name: find(name) for name in QUESTIONS if name in first}
    about = "\n\n".join(inspect.getdoc(one) or "" for one in found.values()) or __doc__
    style: Any = {"formatter_class": RawDescriptionHelpFormatter, "conflict_handler": "resolve"}
    parser = ArgumentParser("python -m benchmarks", description=about, **style)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(QUESTIONS)}")
    parser.add_argument("--smoke", action="store_true", help="try them out in seconds; nothing is kept")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where else: pages stay as they are")
    parser.add_argument("--sb3-python", type=Path, default=PEER_PYTHON, help="the peer's interpreter")
    for name, question in found.items():
        kinds = get_type_hints(question)
        for one in _options(question):
            kind, told = kinds[one.name], f"{name}: {one.default!s:.60}"
            how: Any = {"nargs": "+", "type": get_args(kind)[0]} if get_args(kind) else {"type": kind}
            parser.add_argument(
                f"--{one.name}", help=told, **({"action": "store_true"} if kind is bool else how)
            )
    options = parser.parse_args(words)
    if not found or set(options.names) != set(found):
        unknown = [repr(name) for name in options.names if name not in QUESTIONS]
        parser.error(f"no question {', '.join(unknown) or 'named'}; known are {', '.join(QUESTIONS)}")
    return options, {name: (question, _own(question, options)) for name, question in found.items()}


def _options(question: Ask) -> list[inspect.Parameter]:
    parameters = inspect.signature(question).parameters.values()
    return [one for one in parameters if one.kind is one.KEYWORD_ONLY]


def _own(question: Ask, options: Namespace) -> dict[str, Any]:
    """The arguments of a question: those of the command line, of a trial, and the others by default."""
    said = {one.name: getattr(options, one.name) for one in _options(question)}
    tried = question.smoke if options.smoke else {}  # type: ignore[attr-defined]
    default = {one.name: one.default for one in _options(question)} | tried
    return default | {name: value for name, value in said.items() if value not in (None, False)}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is ended, not left behind
    sys.exit(main())
