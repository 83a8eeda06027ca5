"""Parts of a user's own (environments, algorithms, extensions, samplers), each named ``module:attribute``."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

from algorithm.core.errors import COMMON_BLOCK, UsageError, UserError, described

_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Group:
    """A kind of parts.

    noun:     word for one part of the kind, in messages
    key:      key of the configuration that names parts of the kind
    built_in: names that are valid without a module
    instead:  name of a built-in part that ``key`` does not take -> the key that turns it on
    """

    noun: str
    key: str
    built_in: Sequence[str] = ()
    instead: Mapping[str, str] = field(default_factory=dict, hash=False)


EXTENSIONS = Group(
    "extension",
    f"{COMMON_BLOCK}.extensions",
    instead={
        "atc": f"{COMMON_BLOCK}.siamese",
        "byol": f"{COMMON_BLOCK}.siamese",
        "curiosity": f"{COMMON_BLOCK}.curiosity",
        "extrinsic": "reward_signals.extrinsic",
        "gail": "reward_signals.gail",
        "prediction": f"{COMMON_BLOCK}.use_prediction",
        "rnd": f"{COMMON_BLOCK}.use_rnd or reward_signals.rnd",
    },
)
SAMPLERS = Group("sampler", "replay_config.sampler")

PLUGIN_METRICS = "plugin/"
"""Beginning of the names of metrics that a user's extension logs."""


@dataclass(frozen=True)
class Plugin:
    """A part of a user's own. value: ``module:attribute``."""

    group: Group
    value: str

    def load(self) -> Any:  # noqa: ANN401 - whatever stands there
        """Import the object. Raises UsageError for whatever its module raises."""
        module, _, attribute = self.value.partition(":")
        try:
            target: Any = importlib.import_module(module)
            for part in attribute.split("."):
                target = getattr(target, part)
        except (Exception, SystemExit) as error:
            fix = "it is searched for in the task's folder and on Python's module path"
            raise self.error("cannot be loaded", described(error), fix) from error
        return target

    def make(self, kind: type[_Kind], *args: object, **kwargs: Any) -> _Kind:  # noqa: ANN401 - a user's
        """Call the function or class, and return the ``kind`` that it makes.

        args: of the program; kwargs: of the user's configuration
        Raises UsageError if it cannot be called, does not take the arguments, or makes something else; and
        as :meth:`refused`.
        """
        make = self.load()
        if not callable(make):
            raise self.error("has no maker", f"{self.value} is {make!r}", "name a function or a class")
        if why := mismatch(make, *args, **kwargs):
            takes = [str(parameter) for parameter in inspect.signature(make).parameters.values()][len(args) :]
            fix = f"its arguments are: {', '.join(takes) or 'none'}"
            raise self.error(f"does not take {kwargs}", why, fix)
        try:
            made = make(*args, **kwargs)
        except (Exception, SystemExit) as error:
            raise self.refused(error, "cannot be made") from error
        return self._of_kind(kind, made, "has returned", "its maker must return an")

    def instance(self, kind: type[_Kind]) -> _Kind:
        """Import the part as a ``kind``. Raises UsageError for anything else, and as :meth:`load`."""
        return self._of_kind(kind, self.load(), "is", "it must name an")

    def _of_kind(self, kind: type[_Kind], value: object, verb: str, must: str) -> _Kind:
        """Return a value of the right class. Raises UsageError; verb, must: words of its sentences."""
        if not isinstance(value, kind):
            fix = f"{must} {kind.__module__}.{kind.__name__}"
            raise self.error(f"is not a valid {self.group.noun}", f"{self.value} {verb} {value!r}", fix)
        return value

    def error(self, what: str, why: str, fix: str) -> UsageError:
        """Return a UsageError about the part. what: the rest of the sentence that its name begins."""
        what = f"the {self.group.noun} {self.value} {what}"
        return UsageError(what, where=self.group.key, why=why, fix=fix)

    def refused(self, error: BaseException, what: str) -> UserError:
        """Return an error raised by the part's code as a UserError. what: as for :meth:`error`."""
        if isinstance(error, UserError):
            return error
        why = "\n".join(filter(None, (described(error), self.last_line(error))))
        return self.error(what, why, "correct it there; train.log of a run has the traceback")

    def last_line(self, error: BaseException) -> str:
        """Return the last line of a traceback in the part's files; empty if none is."""
        files, _ = self.sources()
        lines = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename) in files]
        return f"{lines[-1].filename}:{lines[-1].lineno}: {lines[-1].line}" if lines else ""

    @property
    def top(self) -> str:
        """Name of the outermost package of its module."""
        return self.value.partition(":")[0].partition(".")[0]

    def sources(self) -> tuple[list[Path], Path]:
        """Return the part's source files and their folder; it must be loaded."""
        modules = (sys.modules.get(name) for name in (self.top, self.value.partition(":")[0]))
        places = (getattr(module, "__file__", None) for module in modules)
        file = next((Path(module) for module in places if module), Path())
        if file.name != "__init__.py":  # a single module, or one of a namespace
            return [file], file.parent
        return list(file.parent.rglob("*.py")), file.parent


def find(group: Group, name: str) -> Plugin | None:
    """Return the part that a configuration names; None for a built-in one. Nothing is imported.

    Raises UsageError for a name that is neither built in nor ``module:attribute``.
    """
    if ":" in name:
        return Plugin(group, name)
    if name in group.built_in:
        return None
    raise _unknown(group, name)


def _unknown(group: Group, name: str) -> UsageError:
    """Return the error for a name without a part; it proposes a built-in one that is similar."""
    by_lower = {known.lower(): known for known in group.built_in}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    meant = f"did you mean `{by_lower[close[0]]}`? " if close else ""
    choices = f"built in: {', '.join(group.built_in)}; " if group.built_in else ""
    keys = group.instead.get(name.lower())
    return UsageError(
        f"there is no {group.noun} `{name}`",
        where=group.key,
        why="it is built in, with keys of its own" if keys else "it is not built in",
        fix=f"set {keys}" if keys else f"{meant}{choices}write your own as module:NAME",
    )


def mismatch(call: Callable[..., object], *args: object, **kwargs: object) -> str:
    """Return the reason why a function does not take these arguments; empty if it takes them."""
    try:
        inspect.signature(call).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:  # a builtin without a signature
        return ""
    return ""
