"""Plug-ins: environments, extensions, samplers and networks of other packages, by their entry points."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

from algorithm.core.errors import COMMON_BLOCK, UsageError, UserError, described

_Kind = TypeVar("_Kind")

_INSTALL = f"{sys.executable} -m pip"


@dataclass(frozen=True)
class Group:
    """A kind of plug-in, which is one group of entry points.

    entry_points: name of the group
    noun:         word for one plug-in of the kind, in messages
    key:          key of the configuration that names plug-ins of the kind
    built_in:     names that are valid without a plug-in
    instead:      built-in name that ``key`` does not take -> the key that turns it on
    """

    entry_points: str
    noun: str
    key: str
    built_in: Sequence[str] = ()
    instead: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def known(self) -> tuple[str, ...]:
        """All built-in names, also those that ``key`` does not take."""
        return (*self.built_in, *self.instead)


EXTENSIONS = Group(
    "asac.extensions",
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
SAMPLERS = Group("asac.samplers", "sampler", "replay_config.sampler")
NETWORKS = Group("asac.networks", "file of networks", f"{COMMON_BLOCK}.nn", built_in=("nn",))

PLUGIN_METRICS = "plugin/"
"""Beginning of the names of metrics that an extension of another package logs."""


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package, or a ``module:attribute`` that a configuration names itself.

    value:   ``module:attribute``, or a module
    package, version: empty where no package has registered it
    """

    group: Group
    name: str
    value: str
    package: str = ""
    version: str = ""

    @property
    def origin(self) -> str:
        """Package and version, or the module."""
        return f"{self.package} {self.version}" if self.package else self.value

    @property
    def label(self) -> str:
        """Name of the plug-in in messages."""
        return (
            f"the plug-in {self.name} of {self.origin}"
            if self.package
            else f"the {self.group.noun} {self.name}"
        )

    def load(self) -> Any:  # noqa: ANN401 - whatever stands there
        """Import the object of the entry point. Raises UsageError for whatever its module raises."""
        module, _, attribute = self.value.partition(":")
        try:
            target: Any = importlib.import_module(module)
            for part in filter(None, attribute.split(".")):
                target = getattr(target, part)
        except (Exception, SystemExit) as error:
            where = "it is searched for in the task's folder and on Python's module path"
            raise self.error("cannot be loaded", described(error), self._fix(where)) from error
        return target

    def make(self, kind: type[_Kind], *args: object, **kwargs: Any) -> _Kind:  # noqa: ANN401 - a user's
        """Call the plug-in's function or class, and return the ``kind`` that it makes.

        args: of the program; kwargs: of the user's configuration
        Raises UsageError if it cannot be called, does not take the arguments, or makes something else; and
        as :meth:`refused`.
        """
        make = self.load()
        if not callable(make):
            fix = "its entry point must name a function or a class"
            raise self.error("has no maker", f"{self.value} is {make!r}", fix)
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
        """Import the plug-in as a ``kind``. Raises UsageError for anything else, and as :meth:`load`."""
        return self._of_kind(kind, self.load(), "is", "it must name an")

    def _of_kind(self, kind: type[_Kind], value: object, verb: str, must: str) -> _Kind:
        """Return a value of the right class. Raises UsageError; verb, must: words of its sentences."""
        if not isinstance(value, kind):
            fix = f"{must} {kind.__module__}.{kind.__name__}"
            raise self.error(f"is not a valid {self.group.noun}", f"{self.value} {verb} {value!r}", fix)
        return value

    def error(self, what: str, why: str, fix: str) -> UsageError:
        """Return a UsageError about the plug-in. what: the rest of the sentence that its name begins."""
        return UsageError(f"{self.label} {what}", where=f"{self.group.key}, {self.value}", why=why, fix=fix)

    def refused(self, error: BaseException, what: str) -> UserError:
        """Return an error raised by the plug-in's code as a UserError. what: as for :meth:`error`."""
        if isinstance(error, UserError):
            return error
        why = "\n".join(filter(None, (described(error), self.last_line(error))))
        return self.error(what, why, self._fix("correct it there; train.log of a run has the traceback"))

    def last_line(self, error: BaseException) -> str:
        """Return the last line of a traceback in the plug-in's files; empty if none is."""
        files, _ = self.sources()
        lines = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename) in files]
        return f"{lines[-1].filename}:{lines[-1].lineno}: {lines[-1].line}" if lines else ""

    def _fix(self, own_module: str) -> str:
        """Return advice: upgrade the package, or ``own_module`` for a module that no package registers."""
        if not self.package:
            return own_module
        return f"{_INSTALL} install --upgrade {self.package}; if that does not help, its author must fix it"

    @property
    def top(self) -> str:
        """Name of the outermost package of its module."""
        return self.value.partition(":")[0].partition(".")[0]

    def sources(self) -> tuple[list[Path], Path]:
        """Return the plug-in's source files and their folder; it must be loaded."""
        modules = (sys.modules.get(name) for name in (self.top, self.value.partition(":")[0]))
        places = (getattr(module, "__file__", None) for module in modules)
        file = next((Path(module) for module in places if module), Path())
        if file.name != "__init__.py":  # a single module, or one of a namespace
            return [file], file.parent
        return list(file.parent.rglob("*.py")), file.parent


def describe(plugins: Sequence[Plugin]) -> str:
    """Return the origins of plug-ins, for a sentence."""
    return " and ".join(f"{plugin.origin} ({plugin.value})" for plugin in plugins)


@cache
def installed(group: Group) -> Mapping[str, tuple[Plugin, ...]]:
    """Return name -> the plug-ins registered under it, in the order of names. Nothing of them is imported."""
    plugins: dict[str, tuple[Plugin, ...]] = {}
    for entry in metadata.entry_points(group=group.entry_points):
        dist = entry.dist
        package, version = (dist.metadata["Name"], dist.version) if dist is not None else ("?", "?")
        value = entry.value.partition("[")[0].strip()  # extras behind it are obsolete
        plugin = Plugin(group, entry.name, value, str(package), str(version))
        plugins[entry.name] = (*plugins.get(entry.name, ()), plugin)
    return {name: tuple(sorted(plugins[name], key=lambda entry: entry.origin)) for name in sorted(plugins)}


def find(group: Group, name: str) -> Plugin | None:
    """Return the plug-in that a configuration names; None for a built-in name. Nothing is imported.

    name: that of an installed one, or ``module:attribute``
    Raises UsageError for an unknown name, and for one that several packages have or that is also built in.
    """
    if ":" in name:
        return Plugin(group, name, name)
    plugins = installed(group).get(name, ())
    if fault := _fault(group, name, plugins):
        raise fault
    if not plugins and name in group.built_in:
        return None
    if name.lower() in group.instead:
        raise UsageError(
            f"the {group.noun} `{name}` is built in",
            where=group.key,
            why=f"{group.key} is for those of other packages",
            fix=f"it has its own keys: {group.instead[name.lower()]}",
        )
    if not plugins:
        raise unknown(group, name)
    return plugins[0]


def _fault(group: Group, name: str, plugins: Sequence[Plugin]) -> UsageError | None:
    """Return why a registered name cannot be used; None if it can."""
    built_in = next((known for known in group.known if known.lower() == name.lower()), None)
    remove = " ".join(dict.fromkeys(plugin.package for plugin in plugins))
    if plugins and built_in is not None:
        return UsageError(
            f"the plug-in `{name}` of {describe(plugins)} is refused",
            where=group.key,
            why=f"the {group.noun} `{built_in}` is built in, and names must be unique",
            fix=f"{_INSTALL} uninstall {remove}; its author must choose another name",
        )
    if len(plugins) > 1:
        return UsageError(
            f"several packages have the {group.noun} `{name}`",
            where=group.key,
            why=describe(plugins),
            fix=f"keep one of them: {_INSTALL} uninstall {plugins[-1].package}",
        )
    return None


def unknown(group: Group, name: str, *, files: Sequence[str] | None = None, why: str = "") -> UsageError:
    """Return the error for an unknown name.

    files: names of files that are valid instead of the built-in names; why: where the name was searched for
    """
    ours = group.built_in if files is None else files
    by_lower = {valid.lower(): valid for valid in (*ours, *installed(group))}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    meant = f"did you mean `{by_lower[close[0]]}`? " if close else ""
    choices = f"{'built in' if files is None else 'files'}: {', '.join(ours)}; " if ours else ""
    return UsageError(
        f"there is no {group.noun} `{name}`",
        where=group.key,
        why=why or "it is neither built in nor a plug-in of an installed package",
        fix=f"{meant}{choices}installed plug-ins: {', '.join(installed(group)) or 'none'}\n{_INSTALL} "
        "install PACKAGE adds a package's plug-ins; a run's manifest.json names the package",
    )


def listed(*groups: Group) -> Iterator[tuple[str, str]]:
    """Yield name and origin of each installed plug-in, with the reason if it cannot be used."""
    for group in groups:
        for name, plugins in installed(group).items():
            fault = _fault(group, name, plugins)
            refused = f"; refused: {fault.why}" if fault else ""
            yield name, f"{group.noun}, {', '.join(plugin.origin for plugin in plugins)}{refused}"


def mismatch(call: Callable[..., object], *args: object, **kwargs: object) -> str:
    """Return the reason why a function does not take these arguments; empty if it takes them."""
    try:
        inspect.signature(call).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    except ValueError:  # a builtin without a signature
        return ""
    return ""
