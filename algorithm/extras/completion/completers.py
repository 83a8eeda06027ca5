"""Completers of command-line arguments: environments, sections, keys and values, runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from algorithm.config.loader import load_config
from algorithm.config.locate import CONFIG_FILE, find_env, known_tasks
from algorithm.config.schema import field_at, fields
from algorithm.config.sections import read_sections, shipped
from algorithm.config.validation import schema_of


def with_completers(
    parser: argparse.ArgumentParser, runs: Mapping[str, Callable[..., list[str]]]
) -> argparse.ArgumentParser:
    """Add completers to a parser's arguments of known ``dest``, and return the same parser.

    runs: ``dest`` of an argument that names a run -> function (task, models=folder) that lists such names
    """
    completers = _COMPLETERS | {dest: _of_runs(names) for dest, names in runs.items()}
    for action in parser._actions:
        if action.dest in completers:
            vars(action)["completer"] = completers[action.dest]
    return parser


def _of_runs(names: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Return a completer of the names of a task's runs."""
    return lambda parsed_args, **_: names(find_env(parsed_args.env).label, models=parsed_args.directory)


def _environments(prefix: str, **_: object) -> Iterator[str]:
    """Yield tasks, folders and files, and Gymnasium's ids where needed, since it takes a while to load."""
    matches = [name for name in known_tasks() if name.startswith(prefix)]
    if prefix:
        matches += [file if file.endswith("/") else f"{file}:" for file in _files(prefix, "py")]
    else:
        matches += [f"{file.parent}/" for file in Path().glob(f"*/{CONFIG_FILE}")]
    yield from matches
    if prefix[:1].isupper() or not matches:
        import gymnasium as gym

        yield from gym.registry


def _sections(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the sections and files of the task; the shipped sections if none of them matches."""
    folder = find_env(parsed_args.env)
    name, colon, _section = prefix.rpartition(":")
    if colon:
        beside = (folder.path / name, folder.path / f"{name}.yaml")
        return [f"{name}:{section}" for file in beside if file.is_file() for section in _sections_of(file)]
    if folder.env_name is None:
        of_task = _sections_of(folder.path / CONFIG_FILE)
        of_task += [file.stem for file in folder.path.glob("*.yaml") if file.name != CONFIG_FILE]
    else:
        of_task = _files(prefix, "yaml") if prefix else []
    return [name for name in of_task if name.startswith(prefix)] or list(shipped().children)


def _sections_of(file: Path) -> list[str]:
    """Return the names of sections in a file; none if it cannot be read."""
    read = read_sections(file, [])
    return list(read.children) if read else []


def _overrides(prefix: str, **_: object) -> Iterable[str]:
    """Return each key with ``=`` and its description; behind a ``=``, the values of a key that has few."""
    key, equals, _value = prefix.partition("=")
    if equals:
        return [f"{key}={value}" for value in _choices(key)]
    return {
        f"{'.'.join(path)}=": (field.description or "").partition(". ")[0].rstrip(".")
        for path, field in fields()
    }


def _choices(key: str) -> list[str]:
    """Return the words that a key accepts, as YAML spells them."""
    path = tuple(key.split("."))
    schema = schema_of(path) if field_at(path) else {}
    words = {"boolean": ["true", "false"], "null": ["null"]}
    values: list[str] = []
    for option in schema.get("anyOf", [schema]):
        values += words.get(
            option.get("type"), option.get("enum", [option["const"]] if "const" in option else [])
        )
    return values


def _lessons(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return ``parameter=lesson`` for each lesson of the task's curricula."""
    parameters = load_config(parsed_args.env, parsed_args.config).config.parameters
    return [f"{name}={lesson}" for name, parameter in parameters.items() for lesson in parameter.lessons]


def _files(prefix: str, ending: str) -> list[str]:
    """Return the files with an ending that match, and folders."""
    from argcomplete.completers import FilesCompleter

    return FilesCompleter((ending,))(prefix=prefix)


_COMPLETERS: dict[str, Callable[..., Iterable[str]]] = {
    "env": _environments,
    "role": lambda **_: ("learner", "actor", "cluster", "evolver"),
    "config": _sections,
    "overrides": _overrides,
    "algorithm": lambda **_: _choices("algorithm"),
    "preset": lambda **_: _choices("base_config.preset"),
    "nn": lambda parsed_args, **_: [file.stem for file in find_env(parsed_args.env).path.glob("*.py")],
    "lesson": _lessons,
    "ckpt": lambda **_: ("latest", "best"),
    "device": lambda **_: ("auto", "cpu", "cuda"),
}
"""Dest of an action -> its completer; all others complete files, as argcomplete does by default."""
