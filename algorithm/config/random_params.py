"""``random_params``: values drawn once at the start of a run, each from the seed and its own path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from algorithm.config.errors import Problem, suggest
from algorithm.config.schema import RANDOM_BLOCKS, Config, field_at
from algorithm.config.tree import MappingNode, Node, ValueNode, find, to_value
from algorithm.config.yaml_io import inline
from algorithm.core.fields import block_of

_KEY = "random_params"
_FORMS = "{in: [...]}, {std: s}, {std: s, truncated: [lo, hi]} or {truncated: [lo, hi]}"


@dataclass(frozen=True)
class Distribution:
    """A distribution of one parameter.

    kind:    ``choice``: one of ``choices``; ``normal``: around ``centre``; ``uniform``: within ``bounds``
    centre:  the configured value, or another mean; None for a choice
    std:     standard deviation of a normal
    bounds:  the interval of a uniform, or what a normal is clipped to; None: no limit
    choices: the values of ``in``; a value may stand there several times
    weights: of the choices; empty: each as likely
    whole:   the numbers are whole
    """

    kind: Literal["choice", "normal", "uniform"]
    centre: int | float | None = None
    std: float = 0.0
    bounds: tuple[float, float] | None = None
    choices: Sequence[Any] = ()
    weights: Sequence[float] = ()
    whole: bool = False

    @property
    def spread(self) -> float:
        """Standard deviation of the numbers; with bounds at most that of a uniform between them."""
        uniform = math.inf if self.bounds is None else (self.bounds[1] - self.bounds[0]) / math.sqrt(12)
        return uniform if self.kind == "uniform" else min(self.std, uniform)

    def sample(self, rng: Random) -> Any:  # noqa: ANN401 - a number, or whatever stands under `in`
        """Draw one value."""
        if self.kind == "choice":
            return rng.choices(self.choices, self.weights)[0] if self.weights else rng.choice(self.choices)
        lo, hi = self.bounds or (-math.inf, math.inf)
        if self.kind == "uniform":
            return rng.randint(math.ceil(lo), math.floor(hi)) if self.whole else rng.uniform(lo, hi)
        assert self.centre is not None, "a normal has a centre"
        value = rng.gauss(self.centre, self.std)
        if not self.whole:
            return min(max(value, lo), hi)
        return round(value) if self.bounds is None else min(max(round(value), math.ceil(lo)), math.floor(hi))


def draw(
    tree: MappingNode, seed: object, prefix: str, problems: list[Problem]
) -> tuple[MappingNode, dict[str, object], dict[str, Distribution]]:
    """Replace every ``random_params`` by drawn values.

    A draw depends on ``seed`` and on its own dotted path below ``prefix`` alone, so that adding one parameter
    leaves the others as they were. Returns the tree; what was drawn, dotted path → value; and from what.
    """
    drawn: dict[str, object] = {}
    distributions: dict[str, Distribution] = {}
    for name in RANDOM_BLOCKS:
        block = tree.children.get(name)
        if not isinstance(block, MappingNode) or _KEY not in block.children:
            continue
        params = block.children[_KEY]
        block = block.without(_KEY)
        for key, spec in _params(params, name, problems).items():
            distribution = _distribution(block, (name, key), spec, problems)
            if distribution is not None:
                path = f"{prefix}{name}.{key}"
                distributions[path] = distribution
                drawn[path] = distribution.sample(Random(f"{seed}:{path}"))
                block = block.with_child(key, ValueNode(drawn[path], spec.where))
        tree = tree.with_child(name, block)
    return tree, drawn, distributions


def _params(node: Node, block: str, problems: list[Problem]) -> dict[str, MappingNode]:
    """Return the parameters that can be drawn; faults of the others go to ``problems``."""
    if isinstance(node, ValueNode):
        if node.value is not None:
            problems.append(_bad(f"{block}.{_KEY}", node, "it must be a mapping of keys to draw"))
        return {}
    good: dict[str, MappingNode] = {}
    for key, spec in node.children.items():
        path = f"{block}.{_KEY}.{key}"
        known = _drawable(block)
        if key not in known:
            why = f"{block} has no key `{key}` that can be drawn"
            problems.append(Problem(f"unknown key `{path}`", spec.where, why, suggest(key, known, "keys")))
        elif (
            isinstance(spec, ValueNode)
            or not spec.children
            or not set(spec.children) <= {"in", "std", "truncated"}
        ):
            problems.append(_bad(path, spec, f"{inline(to_value(spec))} says no distribution"))
        elif "in" in spec.children and len(spec.children) > 1:
            problems.append(_bad(path, spec, "`in` is a uniform choice and goes with nothing else"))
        else:
            good[key] = spec
    return good


def _drawable(block: str) -> list[str]:
    model = block_of(Config.model_fields[block])
    assert model is not None, f"{block} is a block"
    return [k for k in model.model_fields if field_at((block, k)) and (block, k) != ("sac_config", "seed")]


def _distribution(
    block: MappingNode, path: tuple[str, str], spec: MappingNode, problems: list[Problem]
) -> Distribution | None:
    name = ".".join((path[0], _KEY, path[1]))
    if "in" in spec.children:
        choices = to_value(spec.children["in"])
        if isinstance(choices, list) and choices:
            return Distribution("choice", choices=tuple(choices))
        problems.append(_bad(name, spec.children["in"], "`in` needs a list of at least one value"))
        return None
    centre, bounds, std = _centre(block, path), _interval(spec), _number(spec, "std")
    whole = isinstance(centre, int)
    if centre is None:
        problems.append(_bad(name, spec, f"the configured value of {'.'.join(path)} is not a number"))
    elif "truncated" in spec.children and bounds is None:
        problems.append(
            _bad(name, spec.children["truncated"], "`truncated` needs two numbers [lo, hi], lo ≤ hi")
        )
    elif whole and bounds is not None and math.ceil(bounds[0]) > math.floor(bounds[1]):
        problems.append(_bad(name, spec.children["truncated"], "no whole number lies in the interval"))
    elif "std" in spec.children and (std is None or std < 0):
        problems.append(_bad(name, spec.children["std"], "`std` needs a number ≥ 0"))
    elif std is None:
        return Distribution("uniform", centre, bounds=bounds, whole=whole)
    else:
        return Distribution("normal", centre, std, bounds, whole=whole)
    return None


def _centre(block: MappingNode, path: tuple[str, str]) -> int | float | None:
    """Return the configured value, an int exactly if the key is one for whole numbers."""
    field = field_at(path)
    assert field is not None, f"{path} was looked up before"
    node = find(block, path[1:])
    value = field.default if node is None else _as_number(to_value(node))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return round(value) if field.annotation is int else float(value)


def _interval(spec: MappingNode) -> tuple[float, float] | None:
    node = spec.children.get("truncated")
    ends = (
        [_as_number(end) for end in to_value(node)]
        if isinstance(node, ValueNode) and isinstance(node.value, list)
        else []
    )
    numbers = [end for end in ends if isinstance(end, float) and math.isfinite(end)]
    return (numbers[0], numbers[1]) if len(numbers) == len(ends) == 2 and numbers[0] <= numbers[1] else None


def _number(spec: MappingNode, key: str) -> float | None:
    node = spec.children.get(key)
    value = _as_number(to_value(node)) if node is not None else None
    return value if isinstance(value, float) and math.isfinite(value) else None


def _as_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _bad(path: str, node: Node, why: str) -> Problem:
    return Problem(f"`{path}` cannot be drawn", node.where, why, f"write one of {_FORMS}")
