"""Types of the flags: from the text of an argument to its value. Each raises argparse.ArgumentTypeError."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from algorithm.store.names import Ckpt

ARCHIVE = ".zip"
"""Ending of a run as one file, in small letters or capitals."""

GRAPH = ".onnx"
"""Ending of a policy as an ONNX graph; an export with another ending is one of the whole run."""


def is_export(name: str) -> bool:
    """Return whether a name is that of an export, and not of a run."""
    return name.lower().endswith(ARCHIVE)


def is_graph(name: str) -> bool:
    """Return whether an export has the name of an ONNX graph."""
    return name.lower().endswith(GRAPH)


def whole(lowest: int, highest: float = math.inf) -> Callable[[str], int]:
    """Return a parser of whole numbers within bounds, such as ``1000`` and ``1e3``."""

    def parse(text: str) -> int:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value.is_integer() and lowest <= value <= highest):
            bounds = f"≥ {lowest}" if highest == math.inf else f"from {lowest} to {highest}"
            raise argparse.ArgumentTypeError(f"{text} is not a whole number {bounds}")
        return int(value)

    return parse


positive, natural, port_number = whole(1), whole(0), whole(1, 65535)


def checkpoint(text: str) -> Ckpt:
    """Parse the choice of a checkpoint: a step, ``latest`` or ``best``."""
    if text == "latest":
        return "latest"
    if text == "best":
        return "best"
    try:
        return natural(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, and neither latest nor best") from None


def names(text: str) -> tuple[str, ...]:
    """Parse a list of names, separated by commas."""
    return tuple(name.strip() for name in text.split(","))


def limit(text: str) -> int:
    """Parse a limit: a whole number ≥ 1, or −1 for none."""
    return -1 if text == "-1" else positive(text)


def device(text: str) -> str:
    """Parse a device: ``cpu``, ``auto``, ``cuda`` or ``cuda:N``; ``gpu`` becomes ``cuda``."""
    name = text.lower().replace("gpu", "cuda")
    if not re.fullmatch(r"cpu|auto|cuda(:\d+)?", name):
        raise argparse.ArgumentTypeError(f"{text} is not one of cpu, cuda, cuda:N, gpu, auto")
    return name


def folder(text: str) -> Path:
    """Parse the path of a folder, which need not exist yet; ``~`` is the user's home."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty, and a folder is needed")
    return Path(text).expanduser()


def recording(text: str) -> str:
    """Parse the target of a recording, ``FILE.npz``."""
    if Path(text).suffix.lower() != ".npz":
        raise argparse.ArgumentTypeError(f"{text} is not a FILE.npz")
    return text


def mapping(text: str) -> dict[str, Any]:
    """Parse ``k=v,k=v``, each value as in YAML, or one YAML mapping."""
    from algorithm.config.yaml_io import parse_value

    pairs = [pair.partition("=") for pair in re.split(r",(?=\s*\w+\s*=)", text)]
    try:
        if all(re.fullmatch(r"\s*\w+\s*", key) and equals for key, equals, _ in pairs):
            return {key.strip(): parse_value(value) for key, _, value in pairs}
        value = parse_value(f"{{{text}}}" if ":" in text and text.lstrip()[0] not in "{[" else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is neither k=v,k=v nor a YAML mapping")
    return value
