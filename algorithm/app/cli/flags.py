"""Flags, declared as fields of an options class, and their parser, whose errors have advice."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

from typing_extensions import override

from algorithm.config.errors import EXIT_CONFIG, ConfigError, Problem, did_you_mean
from algorithm.core.program import as_typed

Role = Literal["learner", "actor", "cluster", "evolver"]
EVERY_ROLE: tuple[Role, ...] = ("learner", "actor", "cluster", "evolver")


class Flag(NamedTuple):
    """A flag that sets a field of an options class.

    group: heading under which ``--help`` shows it
    roles: roles of ``main_ds.py`` that have it; none if only ``main.py`` has it
    argument: other arguments for argparse
    """

    names: tuple[str, ...]
    group: str
    roles: tuple[Role, ...]
    argument: dict[str, Any]


def flag(
    *names: str,
    group: str,
    roles: tuple[Role, ...] = (),
    default: Any = None,  # noqa: ANN401 - a default has the type of its field
    **argument: Any,  # noqa: ANN401 - handed on to argparse
) -> Any:  # noqa: ANN401 - stands where the field's own type is declared
    """Declare a field that a flag sets, as `Flag`; one that is false by default is a switch."""
    if default is False:
        argument["action"] = "store_true"
    return dataclasses.field(default=default, metadata={"flag": Flag(names, group, roles, argument)})


def flags_of(kind: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], Flag]]:
    """Yield the fields of an options class that a flag sets, with their flags."""
    for field in dataclasses.fields(kind):
        if "flag" in field.metadata:
            yield field, field.metadata["flag"]


class Parser(argparse.ArgumentParser):
    """Parser of a command line, whose errors have the form of all messages, with advice."""

    def __init__(self, script: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=as_typed(f"python {script}").removeprefix("python "),
            description=description,
            epilog=as_typed(epilog),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Return the group with a title; a new one if there is none."""
        return next(
            (group for group in self._action_groups if group.title == title), None
        ) or self.add_argument_group(title)

    def add_flags(self, kind: type[Any], *, with_roles: bool) -> None:
        """Add the flags of an options class. with_roles: only flags of ``main_ds.py``, with their roles."""
        for field, declared in flags_of(kind):
            if with_roles and not declared.roles:
                continue
            argument = dict(declared.argument)
            if with_roles and declared.roles != EVERY_ROLE:
                argument["help"] += f" [{', '.join(declared.roles)}]"
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            group = self.group(declared.group)
            group.add_argument(*declared.names, dest=field.name, default=default, **argument)

    @override
    def error(self, message: str, fix: str | None = None) -> NoReturn:
        where = f"arguments of {self.prog}"
        leave(Problem("the command line cannot be read", where, message, fix or self.help_hint))

    def read(self, argv: Sequence[str] | None) -> dict[str, Any]:
        """Parse a command line and return the value of each flag; None: the command line of this process.

        Raises SystemExit for unknown words.
        """
        known, unknown = self.parse_known_args(argv)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}", self._near_to(unknown))
        return {key: tuple(value) if isinstance(value, list) else value for key, value in vars(known).items()}

    def _near_to(self, unknown: Sequence[str]) -> str | None:
        """Return advice with known flags similar to unknown ones; None if there are none."""
        by_name = {flag.lstrip("-"): flag for flag in self._option_string_actions}
        names = [word.lstrip("-").partition("=")[0] for word in unknown if word.startswith("-")]
        near = [did_you_mean(name.replace("-", "_"), by_name) for name in names]
        return " ".join(f"did you mean {by_name[name]}?" for name in near if name) or None

    @property
    def help_hint(self) -> str:
        """Command that shows every flag, as advice."""
        words = self.prog if self.prog in ("asac", "asac-ds") else f"python {self.prog}"
        return f"{words} --help shows every flag"


def cannot(what: str, why: str, fix: str) -> Problem:
    """Return the problem of a command line that cannot be carried out."""
    return Problem(what, "command line", why, fix)


def leave(*problems: Problem) -> NoReturn:
    """Print problems and exit with the code of a wrong configuration."""
    print(f"error: {ConfigError(problems)}", file=sys.stderr)
    raise SystemExit(EXIT_CONFIG)
