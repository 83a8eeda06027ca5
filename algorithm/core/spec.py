"""Observations and actions of an agent: names, shapes, dtypes and the layout of the flat action.

These are plain values. Everything that depends on a space (replay columns, default networks, heads) is
built from them, never from a simulator's own space objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.wording import counted

Z_LIMIT = 7.0
"""Bound of the pre-tanh value while acting: beyond it float32 ``tanh`` rounds to ±1."""

IMAGE_AXES = ("HWC", "CHW")
"""Orders of an image's height, width and channels."""

MIN_SIDE = 8
"""Smallest side of an image; an array with a shorter one is a vector."""

Range = tuple[float, float]
"""Smallest and largest number."""

BYTES: Range = (0.0, 255.0)
"""Smallest and largest value of a byte."""

OBS_COLUMNS = ("names", "shapes", "dtypes", "categories", "stacks", "axes", "ranges")
"""Fields of :class:`ObsSpec`, each with an entry for every observation."""

DEFAULT_BEHAVIOUR = "default"
"""Behaviour name of environments with only one kind of agent."""


def image_order(shape: Sequence[int], dtype: str, stack: int = 1, axes: str = "") -> tuple[int, ...] | None:
    """Return the axes of an image: height, width, then those of its channels; None if it is no image.

    An image has rank 3 or 4, or is uint8 of rank 2 (one channel). In rank 3 the smaller of first and last
    axis is the channels; the last if they are equal. Rank 4 has frames first, then as rank 3. Both of its
    sides have at least 8 pixels. All frames become channels of one image.

    stack: frames along the first axis; with more than one, the rest of the shape is that of a single frame.
           Such a frame may have rank 2 whatever its dtype.
    axes:  order of the axes of a single image where it is known, see :class:`ObsSpec`
    """
    if axes:
        order = tuple(axes.index(axis) for axis in "HWC")
    else:
        frames = (stack > 1) + (len(shape) - (stack > 1) == 4)
        picture = shape[frames:]
        if len(picture) not in (2, 3) or (len(picture) == 2 and dtype != "uint8" and not frames):
            return None
        of_picture = tuple(range(frames, len(shape)))  # height and width, with channels on either side
        if len(picture) == 3 and picture[0] < picture[2]:
            of_picture = (*of_picture[1:], of_picture[0])
        # Frames vary slowest among the channels, as if they were stacked along them.
        order = (*of_picture[:2], *range(frames), *of_picture[2:])
    return order if min(shape[axis] for axis in order[:2]) >= MIN_SIDE else None


@dataclass(frozen=True)
class ObsSpec:
    """Named observations of an agent, in a fixed order.

    names:      one per observation; one that is not a Dict or Tuple is called ``obs``.
    shapes:     without batch or time dimension.
    dtypes:     numpy dtype names as the replay stores them; of real numbers ``float32``, or ``float64`` if
                the environment has that.
    categories: of an observation made of choices, the number of values of each of its elements, which count
                from 0; empty for numbers. Left out: there are no such observations.
    stacks:     frames along the first axis. An observation adds the last one; the others come from the
                observations before it, or repeat the first one. 1 is no stack. Left out: there are no stacks.
    axes:       of an image, where the simulator names them: ``HWC`` or ``CHW`` for the order of height, width
                and channels; empty where the shape decides. Left out: the shape decides everywhere.
    ranges:     of images and bytes, the smallest and the largest number, which networks see as 0 and 1; None
                where the space has no bounds. Left out: 0 to 255 for bytes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    categories: tuple[tuple[int, ...], ...] = ()
    stacks: tuple[int, ...] = ()
    axes: tuple[str, ...] = ()
    ranges: tuple[Range | None, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.names)
        object.__setattr__(self, "axes", self.axes or ("",) * n)
        object.__setattr__(self, "categories", self.categories or ((),) * n)
        object.__setattr__(self, "stacks", self.stacks or (1,) * n)
        bytes_only = tuple(BYTES if dtype == "uint8" else None for dtype in self.dtypes)
        object.__setattr__(self, "ranges", self.ranges or bytes_only)
        if any(len(getattr(self, column)) != n for column in OBS_COLUMNS):
            raise ValueError(f"ObsSpec: {', '.join(OBS_COLUMNS)} must have the same length")
        if not n:
            raise ValueError("ObsSpec: an agent needs at least one observation")
        if len(set(self.names)) != n:
            raise ValueError(f"ObsSpec: names must be unique, got {self.names}")
        for name, shape, counts, stack in zip(
            self.names, self.shapes, self.categories, self.stacks, strict=True
        ):
            if counts and len(counts) != prod(shape):
                raise ValueError(f"ObsSpec: {name} has {prod(shape)} elements and {len(counts)} categories")
            if stack != 1 and (not shape or shape[0] != stack):
                raise ValueError(f"ObsSpec: {name} of shape {shape} cannot hold a stack of {stack} frames")
        for name, shape, axes in zip(self.names, self.shapes, self.axes, strict=True):
            if axes not in ("", *IMAGE_AXES) or (axes and len(shape) != len(axes)):
                raise ValueError(f"ObsSpec: {name} of shape {shape} cannot have the axes {axes!r}")

    @override
    def __str__(self) -> str:
        kinds = zip(self.items(), self.categories, self.stacks, strict=True)
        return ", ".join(_in_words(*item, counts, stack) for item, counts, stack in kinds)

    def items(self) -> tuple[tuple[str, tuple[int, ...], str], ...]:
        """Return (name, shape, dtype) of each observation, in order."""
        return tuple(zip(self.names, self.shapes, self.dtypes, strict=True))

    @property
    def images(self) -> dict[str, tuple[int, ...]]:
        """Name -> :func:`image_order` of each that is an image; choices are none, whatever their shape."""
        columns = zip(self.items(), self.categories, self.stacks, self.axes, strict=True)
        orders = {
            name: None if categories else image_order(shape, dtype, stack, axes)
            for (name, shape, dtype), categories, stack, axes in columns
        }
        return {name: order for name, order in orders.items() if order is not None}

    def zeros(self, *lead: int) -> dict[str, NDArray[np.generic]]:
        """Return an all-zero observation with leading dimensions ``lead``."""
        return {name: np.zeros((*lead, *shape), dtype) for name, shape, dtype in self.items()}


def _in_words(name: str, shape: tuple[int, ...], dtype: str, categories: tuple[int, ...], stack: int) -> str:
    """Return an observation in words: ``obs 4 float32``."""
    if len(categories) == 1:
        return f"{name} one of {categories[0]}"
    size = "×".join(map(str, shape)) or "scalar"
    if categories:
        return f"{name} {size} choices"
    return f"{name} {size} {dtype}{', each frame stored once' * (stack > 1)}"


@dataclass(frozen=True)
class ActionSpec:
    """Layout of the flat action: a one-hot per discrete branch, then the continuous part in [-1, 1].

    branches:    number of choices of each discrete branch; empty when there is none.
    continuous:  size of the continuous part; 0 when there is none.
    description: mapping to the environment's own action, in words; by default the layout.
    squash:      function from the policy's z to the continuous part u; ``clip`` cuts z off at ±1. The
                 algorithm sets it.
    records:     what is stored of the policy that acts: the log-probabilities of an action's parts, or its
                 whole distribution. The algorithm sets it.
    values:      D, outputs of a critic for each of its values.
    """

    branches: tuple[int, ...] = ()
    continuous: int = 0
    description: str = field(default="", compare=False)
    squash: Literal["tanh", "clip"] = "tanh"
    records: Literal["logp", "distribution"] = "logp"
    values: int = field(default=1, compare=False)

    def __post_init__(self) -> None:
        if self.continuous < 0 or any(n < 1 for n in self.branches):
            raise ValueError(f"ActionSpec: sizes must be positive, got {self!r}")
        if self.size == 0:
            raise ValueError("ActionSpec: an agent needs at least one action")
        object.__setattr__(self, "description", self.description or self._layout())

    @override
    def __str__(self) -> str:
        return self.description

    def _layout(self) -> str:
        """Return the layout in words: ``one of 3, 2 numbers in [-1, 1]``."""
        sizes = ", ".join(map(str, self.branches))
        several = len(self.branches) > 1
        choices = f"{len(self.branches)} choices: of {sizes}" if several else f"one of {sizes}"
        numbers = f"{counted(self.continuous, 'number')} in [-1, 1]"
        return ", ".join([choices] * bool(self.branches) + [numbers] * bool(self.continuous))

    @property
    def discrete(self) -> int:
        """ΣN: width of the one-hot part, the sum of all branches."""
        return sum(self.branches)

    @property
    def size(self) -> int:
        """Width A of the flat action."""
        return self.discrete + self.continuous

    @property
    def num_heads(self) -> int:
        """Parts whose behaviour log-probability is stored apart (discrete, continuous)."""
        return bool(self.branches) + bool(self.continuous)

    @property
    def record_size(self) -> int:
        """H, how many numbers are stored of the policy that acts, see ``records``.

        A whole distribution is log μ of each choice, then mean and log σ of each continuous action.
        """
        return self.num_heads if self.records == "logp" else self.discrete + 2 * self.continuous

    @property
    def branch_slices(self) -> tuple[slice, ...]:
        """Slice of each branch in the one-hot part, and in masks, logits and critic outputs."""
        ends = np.cumsum(self.branches, dtype=np.int64).tolist()
        return tuple(slice(end - width, end) for end, width in zip(ends, self.branches, strict=True))

    def squashed(self, z: NDArray[np.float32], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the bounded action u = ``squash``(z), of any shape; written into ``out`` if there is one."""
        if self.squash == "tanh":
            return np.tanh(z, out=out)
        return np.clip(z, np.float32(-1.0), np.float32(1.0), out=out)

    def unsquashed(self, u: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the z of u in [-1, 1], of any shape; where ``tanh`` rounds to ±1, ±``Z_LIMIT``."""
        if self.squash == "clip":
            return u.copy()
        with np.errstate(divide="ignore"):  # of ±1, which the limit takes back
            return np.arctanh(u).clip(-Z_LIMIT, Z_LIMIT)

    def padding(self, *lead: int) -> NDArray[np.float32]:
        """Return the action "before the first step": all zeros, [*lead, A]."""
        return np.zeros((*lead, self.size), np.float32)

    def all_allowed(self, *lead: int) -> NDArray[np.bool_]:
        """Return the mask that forbids nothing, [*lead, ΣN]."""
        return np.ones((*lead, self.discrete), np.bool_)

    def random(
        self, rng: np.random.Generator, mask: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Return uniformly random actions among those that ``mask`` [n, ΣN] allows, for the warm-up.

        The result is the flat action [n, A], its pre-tanh value z [n, continuous] and the behaviour
        log-probability [n, H] (discrete part first). The latter is −Σ log n_b over the n_b allowed choices,
        and −|A_c|·log 2, the density of u on [-1, 1].
        """
        n = len(mask)
        action = np.zeros((n, self.size), np.float32)
        logp = np.zeros((n, self.num_heads))  # sums of many numbers
        for where in self.branch_slices:
            allowed = mask[:, where]
            counts = allowed.sum(1)
            chosen = (allowed.cumsum(1) <= rng.integers(counts)[:, None]).sum(1)
            action[np.arange(n), where.start + chosen] = 1.0
            logp[:, 0] -= np.log(counts)
        uniform = rng.uniform(-1.0, 1.0, (n, self.continuous))
        z = np.arctanh(uniform).clip(-Z_LIMIT, Z_LIMIT).astype(np.float32)
        action[:, self.discrete :] = np.tanh(z)
        if self.continuous:
            logp[:, -1] = -self.continuous * float(np.log(2.0))
        return action, z, logp.astype(np.float32)


@dataclass(frozen=True)
class AgentSpec:
    """Observations and actions of one behaviour."""

    obs: ObsSpec
    action: ActionSpec

    @override
    def __str__(self) -> str:
        return f"{self.obs}; {self.action}"
