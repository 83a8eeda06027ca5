"""Errors shown to the user, each with its exit code and a message on cause and remedy.

The error of a configuration lists several of these messages at once (``algorithm.config``).
"""

from __future__ import annotations

import errno
import re
from typing import ClassVar, TypeVar

from typing_extensions import override

COMMON_BLOCK = "sac_config"
"""Block of the configuration with the keys that all algorithms have, for messages that name one."""

_Storage = TypeVar("_Storage", bound="StorageError")

_ADVICE = {
    errno.ENOSPC: "free some disk space, or train from a folder on another disk",
    errno.EDQUOT: "free some of your disk quota, or train from a folder on another disk",
    errno.EROFS: "the file system is read-only: train from a folder that can be written to",
    errno.EACCES: "give yourself write permission there, or train from another folder",
    errno.EPERM: "give yourself write permission there, or train from another folder",
    errno.ENOTDIR: "there is a file where a folder is needed: move it away",
    errno.ENAMETOOLONG: "choose a shorter name, or a folder with a shorter path",
    errno.EEXIST: "there is a file where a folder is needed: move it away",
}


_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Return text with its control characters, text directions and surrogates spelt out.

    So text from a file or another program cannot steer the terminal.
    """
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def described(error: BaseException) -> str:
    """Return ``Kind: text`` of an error raised by foreign code, whose ``__str__`` may fail, too."""
    try:
        text = str(error)
    except Exception as second:
        text = f"its text is not available, __str__ raised {type(second).__name__}"
    return f"{type(error).__name__}: {text}"


def explain(what: str, *, where: str, why: str, fix: str) -> str:
    """Return ``what``, then one labelled block each for where, why and fix; empty ones are left out."""
    blocks = (("where", where), ("why", why), ("to do", fix))
    indent = "\n" + " " * 9
    lines = [what] + [f"  {label:<5}  {text.replace(chr(10), indent)}" for label, text in blocks if text]
    return visible("\n".join(lines))


GYMNASIUM = (
    "write `import gymnasium as gym`, which replaces gym\nreset(self, *, seed=None, options=None) returns "
    "observation and info\nstep(self, action) returns observation, reward, terminated, truncated and info"
)
"""Changes that an environment for gym needs."""


def import_fix(error: BaseException) -> str | None:
    """Return advice on a user's file that cannot be imported: its wrong line, or gymnasium instead of gym.

    None for any other error.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"correct line {error.lineno} of {error.filename}:\n{(error.text or '').rstrip()}"
    return GYMNASIUM if isinstance(error, ModuleNotFoundError) and error.name == "gym" else None


class UserError(Exception):
    """Base of the errors below; raise one of those, for only they have an ``exit_code``.

    what:  what happened, one line.
    where: the file, folder, environment or key it happened at.
    why:   the cause as far as it is known.
    fix:   what the user can do; lines that are commands can be pasted as they are.
    """

    exit_code: ClassVar[int]

    def __init__(self, what: str, *, where: object = "", why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = str(where)
        self.why = why
        self.fix = fix

    @override
    def __str__(self) -> str:
        """Return the message with its labelled blocks, as :func:`explain`."""
        return explain(self.what, where=self.where, why=self.why, fix=self.fix)

    @property
    def line(self) -> str:
        """The message on one line, for warnings and logs."""
        parts = (self.what, self.where, self.why, self.fix)
        return visible(" · ".join(" ".join(part.split()) for part in parts if part))


class UsageError(UserError):
    """A request that is impossible, such as a run name that is taken."""

    exit_code = 2


class ModelError(UserError):
    """Networks that cannot be built or return the wrong shape."""

    exit_code = 2


class EnvError(UserError):
    """An environment that cannot be imported, built, reset or stepped, or violates its spaces."""

    exit_code = 4


class EditorStoppedError(EnvError):
    """The end of playing in the Unity Editor, which is the user's way to end the run."""


class NumericalError(UserError):
    """NaN or infinity where a finite number is needed."""

    exit_code = 5


class StorageError(UserError):
    """A file of the run that cannot be written, is missing or is damaged."""

    exit_code = 6

    @classmethod
    def of(cls: type[_Storage], error: OSError, *, what: str, where: object) -> _Storage:
        """Return the StorageError for an error of the operating system, with advice by its ``errno``."""
        advice = _ADVICE.get(error.errno or 0, "check the disk and the permissions of that folder")
        return cls(what, where=where, why=error.strerror or str(error), fix=advice)
