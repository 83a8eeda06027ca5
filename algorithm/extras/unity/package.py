"""Import of mlagents-envs 0.28.0 with the versions of protobuf, NumPy and Python that this project uses, and
its messages of a ``.demo`` file.

Nothing outside this package imports ``mlagents_envs``, and nothing imports it before :func:`load`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from algorithm.core.errors import EnvError
from algorithm.core.extras import install_command
from algorithm.extras.unity.spaces import UnityBehaviour

_RELEASE = "0.28.0"
_MESSAGES = "mlagents_envs.communicator_objects"
_lock = threading.Lock()


def load() -> None:
    """Make ``mlagents_envs`` importable in this process; further calls do nothing.

    Its modules of messages are built from the descriptors in them, because protobuf 4 and later refuse their
    code. Its loggers write to the log of the run.
    Raises EnvError if the package is missing or of another release.
    """
    with _lock:
        if "mlagents_envs.environment" in sys.modules:
            return
        if importlib.util.find_spec("mlagents_envs") is None:
            raise _missing_package("it is not installed for this Python")
        # importlib.import_module, since type checkers cannot read that package.
        try:
            importlib.import_module("mlagents_envs.logging_util").get_logger = _logger  # type: ignore[attr-defined]
            (folder,) = importlib.import_module(_MESSAGES).__path__
            for file in Path(folder).glob("*_pb2.py"):
                _build_messages(file)
            with _strict_version():
                importlib.import_module("mlagents_envs.environment")
        except ImportError as error:
            version = getattr(sys.modules.get("mlagents_envs"), "__version__", "another release")
            raise _missing_package(f"{version} is installed, and cannot be imported: {error}") from error


def _missing_package(why: str) -> EnvError:
    return EnvError(
        f"Unity environments need the package mlagents-envs {_RELEASE}",
        where="base_config.env_type: UNITY",
        why=why,
        fix=install_command("unity"),
    )


def _build_messages(file: Path) -> None:
    """Make the module of a ``_pb2`` file from the descriptor in it, without executing the file."""
    from google.protobuf import descriptor_pool
    from google.protobuf.internal import builder

    name = f"{_MESSAGES}.{file.stem}"
    if name in sys.modules:
        return
    tree = ast.parse(file.read_text("utf-8"))
    for node in tree.body:  # the pool accepts a file only after those that it imports
        if isinstance(node, ast.ImportFrom) and node.module == _MESSAGES:
            for alias in node.names:
                _build_messages(file.with_name(f"{alias.name}.py"))
    descriptor = descriptor_pool.Default().AddSerializedFile(_descriptor(tree, file))
    module = ModuleType(name)
    builder.BuildMessageAndEnumDescriptors(descriptor, vars(module))
    builder.BuildTopDescriptorsAndMessages(descriptor, name, vars(module))
    sys.modules[name] = module
    setattr(sys.modules[_MESSAGES], file.stem, module)


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
        self.version = tuple(int(number) for number in text.split("."))


def _logger(name: str) -> logging.Logger:
    """Return the logger of one of the package's modules, below the program's.

    Only errors: it warns of data of an unknown side channel in every step.
    """
    logger = logging.getLogger(f"{__package__}.{name}")
    logger.setLevel(logging.ERROR)
    return logger


class DemoMessages(NamedTuple):
    """Classes of the messages in a ``.demo`` file."""

    meta: Any  # DemonstrationMetaProto
    brain: Any  # BrainParametersProto
    pair: Any  # AgentInfoActionPairProto


def demo_messages() -> DemoMessages:
    """Return the classes of a ``.demo`` file's messages. Raises EnvError without the right package."""
    load()
    from mlagents_envs.communicator_objects.agent_info_action_pair_pb2 import AgentInfoActionPairProto
    from mlagents_envs.communicator_objects.brain_parameters_pb2 import BrainParametersProto
    from mlagents_envs.communicator_objects.demonstration_meta_pb2 import DemonstrationMetaProto

    return DemoMessages(DemonstrationMetaProto, BrainParametersProto, AgentInfoActionPairProto)


def recorded_behaviour(brain: Any, info: Any) -> UnityBehaviour:  # noqa: ANN401 - protobuf messages
    """Return the behaviour of a ``.demo`` file: names, shapes, dtypes and axes as from a Unity environment.

    brain: its parameters, in the current or the older form
    info:  an agent's first message
    Raises EnvError without observations or actions, and ValueError for invalid parameters.
    """
    from mlagents_envs.rpc_utils import behavior_spec_from_proto

    return UnityBehaviour(brain.brain_name, behavior_spec_from_proto(brain, info), info)
