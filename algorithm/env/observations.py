"""Gymnasium observations as arrays by name.

| space | shape | dtype |
|---|---|---|
| Box of uint8, int8, int16, int32, int64, bool | its own | its own |
| Box of other numbers | its own | float32, or float64 where float32 does not hold them; images float32 |
| Box of uint64 | its own | float64, and no number above 2**53 |
| Discrete, MultiDiscrete | of ``nvec``; () for Discrete | uint8, int16 or int32; values count from 0 |
| MultiBinary | its own | bool |
| Dict, Tuple | an observation per leaf, "camera/front", "1/left" | |

A key ``action_mask`` of a Dict that is the whole space is a mask, not an observation
(:mod:`algorithm.env.masks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from algorithm.core.errors import described
from algorithm.core.spec import BYTES, ObsSpec, Range, image_order
from algorithm.core.steps import Array
from algorithm.env.outputs import SpaceMismatchError
from algorithm.env.spaces import Leaf, Space, leaves

UNNAMED = "obs"
"""Name of an observation that is neither a Dict nor a Tuple."""

GRID = 16
"""Side in pixels below which a picture of bytes is a grid of cells, such as a board."""

_KEPT = frozenset({"uint8", "int8", "int16", "int32", "int64", "bool"})
_NARROW = frozenset({"float16", "float32", "uint16"})
_WIDEST = 65535.0  # range of the pictures with the most bits

_Convert = Callable[[Any], Any]


class _Extractor(NamedTuple):
    """One observation: its spec, and how to extract it from the environment's output."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    categories: tuple[int, ...]
    span: Range | None
    pick: _Convert
    convert: _Convert


class Observations:
    """Conversion of a space's observations to arrays by name, for one environment or N at once.

    env:   name of the environment, for messages
    stack: frames of a frame stack, 1 for none; see :func:`frame_stack`
    Raises :class:`EnvError` for a space with an unsupported leaf.
    """

    def __init__(self, space: Space, env: str, *, stack: int = 1) -> None:
        extractors = [_extractor(leaf, stack) for leaf in leaves(space, "observation", env)]
        names, shapes, dtypes, categories, ranges, _, _ = zip(*extractors, strict=True)
        stacks = (stack,) * (stack > 1)  # a stack is the only observation
        self.spec = ObsSpec(names, shapes, dtypes, categories, stacks, ranges=ranges)
        self._extractors = extractors

    def read(self, value: Any) -> dict[str, Any]:  # noqa: ANN401 - a space may hold anything
        """Extract observations by name; they may be the environment's own arrays, of another real dtype.

        ``value`` may hold observations of N environments, leaf by leaf, as vector classes do. Raises
        SpaceMismatchError for a missing part, and for choices and integers out of range; the caller checks
        shapes.
        """
        return {extractor.name: extractor.convert(extractor.pick(value)) for extractor in self._extractors}

    def read_batch(self, value: Any, n: int) -> dict[str, Array]:  # noqa: ANN401 - see read
        """Return copies of the observations of N environments, [n, ...] in the dtypes of the spec."""
        obs = {}
        for extractor in self._extractors:
            picked = extractor.pick(value)
            check_shape(extractor.name, np.shape(picked), (n, *extractor.shape))
            obs[extractor.name] = np.array(extractor.convert(picked), extractor.dtype)
        return obs

    def read_each(self, values: Sequence[Any]) -> dict[str, Array]:
        """Return copies of N observations, one of each environment, [n, ...] in the dtypes of the spec."""
        obs = {}
        for extractor in self._extractors:
            picked = [extractor.pick(value) for value in values]
            for value in picked:
                check_shape(extractor.name, np.shape(value), extractor.shape)
            obs[extractor.name] = np.array([extractor.convert(value) for value in picked], extractor.dtype)
        return obs


def _unbounded(box: gym.spaces.Box) -> bool:
    """Return whether the bounds include every number of the dtype."""
    if not np.issubdtype(box.dtype, np.integer):
        return bool(np.isneginf(box.low).all() and np.isposinf(box.high).all())
    limits = np.iinfo(box.dtype)  # type: ignore[type-var]
    return bool((box.low <= limits.min).all() and (box.high >= limits.max).all())


def check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise SpaceMismatchError for another shape than expected, since numpy would broadcast silently."""
    if shape != expected:
        raise SpaceMismatchError(f"observation {name!r} has shape {shape}, its space has {expected}")


def frame_stack(env: gym.Env[Any, Any]) -> int:
    """Return the number of frames in a stack that the replay can rebuild; 1 if there is no stack.

    A stack is a ``FrameStackObservation`` around a Box of uint8, padded with its first frame. It must be the
    outermost wrapper: another one around it could change its output.
    """
    if type(env) is not gym.wrappers.FrameStackObservation or env.padding_type != "reset":
        return 1
    frame = env.env.observation_space
    return env.stack_size if isinstance(frame, gym.spaces.Box) and frame.dtype == np.uint8 else 1


def _extractor(leaf: Leaf, stack: int) -> _Extractor:
    """Return the extractor of a leaf of the observation space."""
    space, name = leaf.space, leaf.name or UNNAMED
    pick = partial(_pick, leaf.path, name)
    shape = tuple(space.shape or ())
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        counts = np.asarray(space.n if isinstance(space, gym.spaces.Discrete) else space.nvec, np.int64)
        dtype = _choice_dtype(int(counts.max()))
        start = np.asarray(space.start, np.int64)
        convert = partial(_choices, name, counts, start, np.dtype(dtype))
        return _Extractor(name, shape, dtype, tuple(counts.ravel().tolist()), None, pick, convert)
    dtype = "bool" if isinstance(space, gym.spaces.MultiBinary) else str(space.dtype)
    image = image_order(shape, dtype, stack) or ()
    span = _range(space, *(shape[axis] for axis in image[:2])) if image or dtype == "uint8" else None
    if dtype in _KEPT:
        return _Extractor(name, shape, dtype, (), span, pick, partial(_cast, name, np.dtype(dtype)))
    dtype = "float32" if image or dtype in _NARROW else "float64"
    read = _exact if space.dtype == np.uint64 and dtype == "float64" else _numeric
    return _Extractor(name, shape, dtype, (), span, pick, partial(read, name))


def _range(space: Space, *sides: int) -> Range | None:
    """Return the smallest and largest number of an image with these sides, or of bytes.

    None where the bounds have no meaning: infinite ones, those of the dtype, and ones that differ by element.
    """
    if not isinstance(space, gym.spaces.Box) or space.dtype == np.bool_:
        return 0.0, 1.0
    if space.dtype == np.uint8 and _unbounded(space):
        return None if sides and min(sides) < GRID else BYTES
    low, high = float(space.low.flat[0]), float(space.high.flat[0])
    alike = (space.low == space.low.flat[0]).all() and (space.high == space.high.flat[0]).all()
    return (low, high) if alike and not _unbounded(space) and 0.0 < high - low <= _WIDEST else None


def _choice_dtype(largest: int) -> str:
    """Return the smallest dtype for choices, by their largest number."""
    if largest <= 256:
        return "uint8"
    return "int16" if largest <= 32768 else "int32"


def _pick(path: tuple[Any, ...], name: str, value: Any) -> Any:  # noqa: ANN401 - any output of an environment
    """Return the value at a path in an observation. Raises SpaceMismatchError if it is missing."""
    try:
        for key in path:
            value = value[key]
    except (KeyError, IndexError, TypeError) as error:
        raise SpaceMismatchError(
            f"observation {name!r} is missing in what was returned ({described(error)})"
        ) from error
    return value


def _numeric(name: str, value: Any) -> Array:  # noqa: ANN401 - any output of an environment
    """Convert to real numbers; numpy would drop imaginary parts and parse text."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise SpaceMismatchError(f"observation {name!r} is not an array of numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        raise SpaceMismatchError(f"observation {name!r} is {array.dtype}, its space has real numbers")
    return array


def _exact(name: str, value: Any) -> Array:  # noqa: ANN401 - any output of an environment
    """Convert to whole numbers that float64 holds, which numpy would round silently."""
    array = _numeric(name, value)
    if np.greater(array, 2**53).any():
        raise SpaceMismatchError(
            f"observation {name!r} holds {array.max()}; it is stored as float64, and no whole number above "
            "2**53 is: make its space int64, or give it in two parts"
        )
    return array


def _cast(name: str, dtype: np.dtype[Any], value: Any) -> Array:  # noqa: ANN401 - any output of an environment
    """Convert to integers of ``dtype``, which must hold them: numpy would wrap silently."""
    array = _numeric(name, value)
    if array.dtype == dtype:
        return array
    converted: Array = array.astype(dtype)
    if not np.array_equal(converted, array):
        raise SpaceMismatchError(f"observation {name!r} has numbers of {array.dtype} that do not fit {dtype}")
    return converted


def _choices(
    name: str,
    counts: NDArray[np.int64],
    start: NDArray[np.int64],
    dtype: np.dtype[Any],
    value: Any,  # noqa: ANN401 - any output of an environment
) -> Array:
    """Convert to choices counted from 0, each below its count."""
    array = np.asarray(value)
    if array.dtype.kind not in "iub":
        raise SpaceMismatchError(f"observation {name!r} is {array.dtype}, its space has whole numbers")
    if array.shape[array.ndim - counts.ndim :] != counts.shape:
        return array  # the caller checks the shapes
    choice = array.astype(np.int64) - start
    bad = (choice < 0) | (choice >= counts)
    if bad.any():
        first, last = (np.broadcast_to(end, bad.shape)[bad][0] for end in (start, start + counts - 1))
        raise SpaceMismatchError(
            f"observation {name!r} holds {array[bad][0]}, its space has {first} to {last}"
        )
    return choice.astype(dtype)
