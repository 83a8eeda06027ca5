"""``random_params``: values drawn once at the start of a run, each from the seed and its own path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, ValidationError

from algorithm.config.errors import Problem, suggest
from algorithm.config.schema import RANDOM_BLOCKS, field_at, fields
from algorithm.config.tree import Node, from_value_at, merge, to_value
from algorithm.config.yaml_io import inline
from algorithm.core.fields import Block, Finite, NotNegative, to_number

RANDOM = "random_params"
"""Key of a block with the keys to draw."""

_FORMS = (
    "one of {in: [...]}, {std: s}, {std: s, truncated: [lo, hi]} or {truncated: [lo, hi]}, "
    "with at least one value, s ≥ 0 and lo ≤ hi"
)


class Form(Block):
    """An entry of ``random_params``; ``in`` excludes the other keys."""

    choices: Annotated[tuple[Any, ...], Strict(False), Field(min_length=1)] | None = Field(None, alias="in")
    std: NotNegative | None = None
    truncated: Annotated[tuple[Finite, Finite], Strict(False)] | None = None


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
    tree: Node, seed: object, prefix: str, problems: list[Problem]
) -> tuple[Node, dict[str, object], dict[str, Distribution]]:
    """Replace every ``random_params`` by drawn values.

    A draw depends on ``seed`` and on its own dotted path below ``prefix`` alone, so that adding one parameter
    leaves the others as they were. Return the tree, and by dotted path the drawn values and their
    distributions.
    """
    drawn: dict[str, object] = {}
    distributions: dict[str, Distribution] = {}
    for name in RANDOM_BLOCKS:
        params = tree.find((name, RANDOM))
        if params is None:
            continue
        block = tree.children[name].without(RANDOM)
        if not params.is_mapping and params.value is not None:
            problems.append(_bad(f"{name}.{RANDOM}", params, "it must be a mapping of keys to draw"))
        for key, spec in params.children.items():
            distribution = _distribution(block, (name, key), spec)
            if isinstance(distribution, Problem):
                problems.append(distribution)
                continue
            path = f"{prefix}{name}.{key}"
            distributions[path] = distribution
            drawn[path] = distribution.sample(Random(f"{seed}:{path}"))
            block = merge(block, from_value_at((key,), drawn[path], spec.where))
        tree = Node({**tree.children, name: block}, tree.where)
    return tree, drawn, distributions


def _distribution(block: Node, path: tuple[str, str], spec: Node) -> Distribution | Problem:
    """Return the distribution of a parameter, or the fault of its entry."""
    name, key = f"{path[0]}.{RANDOM}.{path[1]}", ".".join(path)
    field, form = field_at(path), _read(spec)
    if field is None or path == ("sac_config", "seed"):
        known = [
            key_path[1]
            for key_path, _ in fields()
            if key_path[0] == path[0] and len(key_path) == 2 and key_path[1] != "seed"
        ]
        why = f"{path[0]} has no key `{path[1]}` that can be drawn"
        return Problem(f"unknown key `{name}`", spec.where, why, suggest(path[1], known, "keys"))
    if form is None:
        return _bad(name, spec, f"{inline(to_value(spec))} is not a distribution")
    if form.choices is not None:
        return Distribution("choice", choices=form.choices)
    node = block.children.get(path[1])
    centre = field.default if node is None else to_number(node.value)
    if isinstance(centre, bool) or not isinstance(centre, int | float) or not math.isfinite(centre):
        return _bad(name, spec, f"the configured value of {key} is not a number")
    whole, bounds = field.annotation is int, form.truncated
    if whole and bounds is not None and math.ceil(bounds[0]) > math.floor(bounds[1]):
        return _bad(name, spec.children["truncated"], "the interval contains no whole number")
    return Distribution(
        "uniform" if form.std is None else "normal",
        round(centre) if whole else float(centre),
        form.std or 0.0,
        bounds,
        whole=whole,
    )


def _read(spec: Node) -> Form | None:
    """Return an entry as a valid form; None if it has none."""
    try:
        form = Form.model_validate(to_value(spec))
    except ValidationError:
        return None
    numbers = form.std is not None or form.truncated is not None
    ordered = form.truncated is None or form.truncated[0] <= form.truncated[1]
    return form if ordered and numbers == (form.choices is None) else None


def _bad(path: str, node: Node, why: str) -> Problem:
    """Return the problem of an entry in ``random_params``."""
    return Problem(f"`{path}` cannot be drawn", node.where, why, f"write {_FORMS}")
