"""Import of mlagents-envs 0.28.0 beside the protobuf, NumPy and Python versions that this project uses.

Nothing outside this package imports ``mlagents_envs``, and nothing imports it before :func:`load`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from typing_extensions import override

from algorithm.core.errors import EnvError
from algorithm.core.extras import install_command

_RELEASE = "0.28.0"
_MESSAGES = "mlagents_envs.communicator_objects."
_lock = threading.Lock()


def load() -> None:
    """Make ``mlagents_envs`` importable in this process; further calls do nothing.

    Its modules of messages are built from the descriptors they contain, because protobuf 4 and later refuse
    the code around them. Its loggers write to the log of the run. Its test for NaN is off: it names neither
    behaviour nor sensor and ignores images. All numbers of environments are examined elsewhere.
    Raises EnvError if the package is missing or of another release.
    """
    with _lock:
        if any(isinstance(finder, _MessageFinder) for finder in sys.meta_path):
            return
        if importlib.util.find_spec("mlagents_envs") is None:
            raise _needed("it is not installed for this Python")
        # importlib.import_module, for type checkers have nothing to read in that package.
        importlib.import_module("mlagents_envs.logging_util").get_logger = _logger  # type: ignore[attr-defined]
        finder = _MessageFinder()
        sys.meta_path.insert(0, finder)
        try:
            with _strict_version():
                importlib.import_module("mlagents_envs.environment")
            checks = importlib.import_module("mlagents_envs.rpc_utils")
            checks._raise_on_nan_and_inf = _unchanged  # type: ignore[attr-defined]
        except BaseException as error:
            sys.meta_path.remove(finder)
            if isinstance(error, ImportError):
                found = getattr(sys.modules.get("mlagents_envs"), "__version__", "another release")
                raise _needed(f"{found} is installed, and cannot be imported: {error}") from error
            raise


def _needed(why: str) -> EnvError:
    return EnvError(
        f"Unity environments need the package mlagents-envs {_RELEASE}",
        where="base_config.env_type: UNITY",
        why=why,
        fix=install_command("unity"),
    )


class _MessageFinder(MetaPathFinder):
    """Finder of the package's ``_pb2`` modules, in front of the one that would execute them."""

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not (fullname.startswith(_MESSAGES) and fullname.endswith("_pb2")):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        return ModuleSpec(fullname, _MessageLoader(Path(spec.origin)), origin=spec.origin)


class _MessageLoader(Loader):
    """Loader that builds messages from the descriptor in a ``_pb2`` file, which is not executed."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @override
    def exec_module(self, module: ModuleType) -> None:
        from google.protobuf import descriptor_pool
        from google.protobuf.internal import builder

        tree = ast.parse(self._file.read_text("utf-8"))
        for name in _imported(tree):  # the pool accepts a file only after those that it imports
            importlib.import_module(name)
        descriptor = descriptor_pool.Default().AddSerializedFile(_descriptor(tree, self._file))
        builder.BuildMessageAndEnumDescriptors(descriptor, module.__dict__)
        builder.BuildTopDescriptorsAndMessages(descriptor, module.__name__, module.__dict__)


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of messages that a file imports."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and f"{node.module}." == _MESSAGES:
            yield from (f"{_MESSAGES}{alias.name}" for alias in node.names)


def _descriptor(tree: ast.Module, file: Path) -> bytes:
    """Return the serialised FileDescriptorProto: the text in ``FileDescriptor(serialized_pb=_b('…'))``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb" and isinstance(node.value, ast.Call):
            (text,) = node.value.args
            return bytes(ast.literal_eval(text), "latin1")
    raise ImportError(f"{file} contains no descriptor", path=str(file))


@contextmanager
def _strict_version() -> Iterator[None]:
    """Provide ``distutils.version`` inside the block: Python 3.12 has none, earlier ones warn about it."""
    modules = {name: ModuleType(name) for name in ("distutils", "distutils.version")}
    modules["distutils.version"].StrictVersion = _StrictVersion  # type: ignore[attr-defined]
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


class _StrictVersion:
    """Version number ``major.minor.patch``; ``version`` has the three numbers."""

    def __init__(self, text: str) -> None:
        self.version = tuple(int(part) for part in text.split("."))


@cache  # the package asks for one with each message of an unknown channel
def _logger(name: str) -> logging.Logger:
    """Return the logger of one of the package's modules, as part of the program's log."""
    logger = logging.getLogger(f"{__package__}.{name}")
    logger.addFilter(_Sparse())
    return logger


class _Sparse(logging.Filter):
    """Filter for what the package repeats in every step, such as data of an unknown side channel."""

    _MOST = 100  # texts that are remembered

    def __init__(self) -> None:
        super().__init__()
        self._texts: set[str] = set()

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        # "Press Play" is logged for every player, not only the editor.
        if text in self._texts or "pressing the Play button" in text:
            return False
        if len(self._texts) < self._MOST:
            self._texts.add(text)
        return True


def _unchanged(data: object, source: str) -> object:
    """Return the data as they are."""
    return data
