"""Completion of command lines in a shell, by argcomplete: ``eval "$(asac --completion bash)"``.

The shell starts the program for every word to be completed, so nothing here loads torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NoReturn, Protocol, Union, get_args, get_origin

from typing_extensions import override

from algorithm.config import shipped_sections
from algorithm.config.locate import CONFIG_FILE, WHOLE_FILE, find_env, known_tasks, read_sections
from algorithm.config.schema import field_at, fields

_SHELLS = ("bash", "zsh", "fish")
_COMMANDS = ("asac", "asac-ds")


class NamesOfRuns(Protocol):
    """Function that lists names in the folder of a task's runs."""

    def __call__(self, env: str, *, models: Path) -> list[str]:
        """Return the names. env: label of the task; models: folder of all runs."""


_Words = Iterable[str]  # a mapping has descriptions as its values
_Completer = Callable[[str, argparse.Namespace], _Words]


class _PrintCode(argparse.Action):
    @override
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: object
    ) -> NoReturn:
        from argcomplete.shell_integration import shellcode  # not needed in a run

        # Without further options bash offers no files where no word fits.
        print(shellcode(_COMMANDS, shell=values, complete_arguments=["-o", "nospace"]))
        raise SystemExit(0)


def add_completion(parser: argparse._ActionsContainer) -> None:
    """Add the flag that prints code for a shell, with which it completes ``asac`` and ``asac-ds``."""
    parser.add_argument(
        "--completion",
        action=_PrintCode,
        choices=_SHELLS,
        default=argparse.SUPPRESS,
        help="print code that lets a shell complete asac and asac-ds, and exit",
    )


def complete(make_parser: Callable[[], argparse.ArgumentParser], runs: Mapping[str, NamesOfRuns]) -> None:
    """Answer a shell that asks how a command line may go on, and end the process; else do nothing.

    runs: dest of an action -> names that it completes
    """
    if "_ARGCOMPLETE" not in os.environ:
        return
    with suppress(Exception):
        from argcomplete import autocomplete
        from argcomplete.completers import SuppressCompleter

        parser = make_parser()
        completers = _completers() | {dest: _of_runs(names) for dest, names in runs.items()}
        for action in parser._actions:
            if action.dest in completers:
                vars(action)["completer"] = _as_argcomplete(completers[action.dest])
        autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())
    os._exit(1)


def _completers() -> dict[str, _Completer]:
    """Return dest of an action -> its completer."""
    return {
        "env": lambda word, _: _environments(word),
        "role": lambda *_: ("learner", "actor", "cluster", "evolver"),
        "config": _sections,
        "override": lambda word, _: _overrides(word),
        "preset": lambda *_: (name for name in _choices("base_config.preset") if name != "null"),
        "nn": lambda _, given: (file.stem for file in find_env(given.env).path.glob("*.py")),
        "ckpt": lambda *_: ("latest", "best"),
        "device": lambda *_: ("auto", "cpu", "cuda"),
        "directory": lambda word, _: _folders(word),
        "networks": lambda word, _: _folders(word),
        "record": lambda word, _: _files(word, "npz"),
        "failure": lambda word, _: _files(word),
    }


def _as_argcomplete(completer: _Completer) -> Callable[..., _Words]:
    """Return a completer as argcomplete calls it. Whatever is wrong, there is nothing to offer."""

    def words(prefix: str, parsed_args: argparse.Namespace, **_: object) -> _Words:
        with suppress(Exception):
            found = completer(prefix, parsed_args)
            return found if isinstance(found, Mapping) else list(found)
        return ()

    return words


def _of_runs(names: NamesOfRuns) -> _Completer:
    return lambda _, given: names(find_env(given.env).label, models=given.directory)


def _environments(word: str) -> Iterator[str]:
    """Yield tasks, folders, files and ids of Gymnasium, which takes a while to load."""
    found = [name for name in known_tasks() if name.startswith(word)]
    if word:
        found += [*_folders(word), *(f"{file}:" for file in _files(word, "py") if not file.endswith("/"))]
    else:
        found += [f"{file.parent}/" for file in Path().glob(f"*/{CONFIG_FILE}")]
    yield from found
    if word[:1].isupper() or not found:
        import gymnasium as gym

        yield from gym.registry


def _sections(word: str, given: argparse.Namespace) -> list[str]:
    """Return the task's own sections and files; where none of them fits, the sections of every task."""
    folder = find_env(given.env)
    name, colon, _ = word.rpartition(":")
    if colon:
        beside = (folder.path / name, folder.path / f"{name}.yaml")
        return [f"{name}:{section}" for file in beside if file.is_file() for section in _sections_of(file)]
    if folder.env_name is None:
        own = _sections_of(folder.path / CONFIG_FILE)
        own += [file.stem for file in folder.path.glob("*.yaml") if file.name != CONFIG_FILE]
    else:
        own = _files(word, "yaml") if word else []
    return [name for name in own if name.startswith(word)] or list(shipped_sections.sections().children)


def _sections_of(file: Path) -> list[str]:
    read = read_sections(file, [])
    return [name for name in read.children if name != WHOLE_FILE] if read else []


def _overrides(word: str) -> _Words:
    """Return every key with ``=`` and what it says, or behind a ``=`` the values of a key that has few."""
    key, equals, _ = word.partition("=")
    if equals:
        return [f"{key}={value}" for value in _choices(key)]
    return {
        f"{'.'.join(path)}=": (field.description or "").partition(". ")[0].rstrip(".")
        for path, field in fields()
    }


def _choices(key: str) -> list[str]:
    """Return the values of a key that are words, as YAML has them."""
    field = field_at(tuple(key.split(".")))
    return list(_words_of(field.annotation)) if field else []


def _words_of(kind: object) -> Iterator[str]:
    """Yield the words that a type allows: those of a Literal, ``true``, ``false``, ``null``."""
    if kind is bool:
        yield from ("true", "false")
    elif kind is type(None):
        yield "null"
    elif get_origin(kind) is Literal:
        yield from (str(value) for value in get_args(kind))
    elif get_origin(kind) is Annotated:
        yield from _words_of(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for part in get_args(kind):
            yield from _words_of(part)


def _folders(word: str) -> list[str]:
    from argcomplete.completers import DirectoriesCompleter

    return list(DirectoriesCompleter()(prefix=word))


def _files(word: str, ending: str = "") -> list[str]:
    """Return files of that ending, or all, and the folders that may hold them."""
    from argcomplete.completers import FilesCompleter

    return FilesCompleter((ending,) if ending else ())(prefix=word)
