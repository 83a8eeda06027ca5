"""Layers of a configuration: they are laid once, drawn once, and validated once for each behaviour."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

from pydantic import ValidationError

from algorithm.agents.registry import misplaced
from algorithm.config.errors import Problem
from algorithm.config.random_params import RANDOM, Distribution, draw
from algorithm.config.schema import BEHAVIOUR_KEYS, MERGE_KEYS, Config, contradictions_in, field_at, fields
from algorithm.config.sections import as_section, lay_memory
from algorithm.config.tree import KeyPath, Node, from_value_at, merge, to_value
from algorithm.config.validation import contradiction, missing_environment, without_faults
from algorithm.config.yaml_io import inline, parse_value
from algorithm.core.program import flag_or_argument

_FRESH_SEEDS = 2**31
SEED_PATH = ("sac_config", "seed")


@dataclass(frozen=True, kw_only=True)
class Validated:
    """A validated configuration, and the trees that it came from.

    behaviours: configurations of the behaviours in ``ma_config``; see `LoadedConfig.for_behaviour`.
    tree:       file, overrides and flags, merged, before draws and without the schema's defaults.
    trees:      the tree of each configuration after draws, by its key in ``ma_config``; "" is for all.
    drawn:      dotted path → value drawn by ``random_params``.
    for_memory: dotted path → value that the section ``memory`` sets, because there is a seq_encoder.
    distributions: dotted path → distribution of a value in ``drawn``.
    """

    config: Config
    behaviours: Mapping[str, Config]
    tree: Node
    trees: Mapping[str, Node] = field(default_factory=dict)
    drawn: dict[str, object] = field(default_factory=dict)
    for_memory: dict[str, object] = field(default_factory=dict)
    distributions: dict[str, Distribution] = field(default_factory=dict)

    @property
    def raw(self) -> dict[str, Any]:
        """The tree as plain values, as a file would hold them."""
        return cast("dict[str, Any]", to_value(self.tree))


def parse_override(text: str) -> tuple[KeyPath, object]:
    """Parse ``a.b=value`` as path and value; text stays text where the key holds text.

    Raises ValueError with a one-line reason.
    """
    dotted, equals, written = text.partition("=")
    path = tuple(part.strip() for part in dotted.split("."))
    if not equals or not all(path):
        raise ValueError("it must be a dotted path, an equals sign and a value")
    key = field_at(path[2:] if path[0] == "ma_config" else path)
    if key is None or key.annotation not in (str, str | None):
        return path, parse_value(written)
    try:
        value = parse_value(written)
    except ValueError:
        return path, written
    is_null = value is None and key.annotation is not str
    return path, value if isinstance(value, str) or is_null else written


Overrides = Sequence[str] | Mapping[str, object]
"""Changes of a configuration: texts ``a.b=value`` of a command line, or dotted path → value of a program."""


_SECOND = ("tune_config", "eval_config", "reward_signals", "behavioral_cloning", "demonstrations")
"""Blocks that :func:`in_blocks` chooses only for keys that no other block has."""


_UNCLEAR = ("alpha", "beta", "strength")
"""Keys that require their block: in several blocks they mean different things."""


@dataclass(frozen=True)
class Edits:
    """Changes by a command line or a program, as one layer for each key; the last one wins.

    texts: the overrides as ``a.b=value``, each key with its block
    """

    texts: tuple[str, ...]
    overrides: tuple[Node, ...]
    flags: tuple[Node, ...]

    @property
    def tree(self) -> Node:
        """The changes as one tree."""
        return lay(*self.overrides, *self.flags)


def read_edits(
    overrides: Overrides, flags: Mapping[str, object], below: Node, problems: list[Problem]
) -> Edits:
    """Read overrides and flags; faults go to ``problems``. below: the tree that they change."""
    flag_layers = layers(flags, flag_or_argument("command line", "arguments")) if flags else ()
    overrides = in_blocks(overrides, below, flags)
    if isinstance(overrides, Mapping):
        texts = tuple(f"{key}={inline(value)}" for key, value in overrides.items())
        return Edits(texts, layers(overrides, "overrides"), flag_layers)
    read = []
    for text in overrides:
        where = f"-o {text}"
        try:
            read.append(from_value_at(*parse_override(text), where))
        except ValueError as error:
            fix = "write for example -o sac_config.learning_rate=1e-3"
            problems.append(Problem(f"cannot read the override `{text}`", where, str(error), fix))
    return Edits(tuple(overrides), tuple(read), flag_layers)


def layers(values: Mapping[str, object], source: str) -> tuple[Node, ...]:
    """Return a layer for each value, from dotted path → value."""
    return tuple(
        from_value_at(tuple(dotted.split(".")), value, f"{source} ({dotted})")
        for dotted, value in values.items()
    )


def lay(*lowest_first: Node) -> Node:
    """Merge layers to one tree; later ones win."""
    return reduce(merge, lowest_first, Node({}))


def in_blocks(overrides: Overrides, below: Node, flags: Mapping[str, object]) -> Overrides:
    """Return the overrides with the block of each key that was written without it.

    So ``learning_rate`` becomes ``sac_config.learning_rate``, with PPO ``ppo_config.learning_rate``.
    A key of no block, or of several, stays as it is.
    """
    algorithm = flags.get("algorithm") or _algorithm(overrides) or below.value_at("algorithm")
    algorithm = algorithm or Config.model_fields["algorithm"].default
    if not isinstance(algorithm, str):  # which is refused
        return overrides
    if isinstance(overrides, Mapping):
        return {_in_block(key, algorithm): value for key, value in overrides.items()}
    parts = (text.partition("=") for text in overrides)
    return [
        f"{_in_block(key.strip(), algorithm) if equals else key}{equals}{value}"
        for key, equals, value in parts
    ]


def _algorithm(overrides: Overrides) -> object:
    """Return the algorithm that the last override of ``algorithm`` chooses; None without a readable one."""
    if isinstance(overrides, Mapping):
        return overrides.get("algorithm")
    with contextlib.suppress(ValueError):
        for text in reversed(overrides):
            if text.partition("=")[0].strip() == "algorithm":
                return parse_override(text)[1]
    return None


def _in_block(key: str, algorithm: str) -> str:
    """Return a key with its block; as it is if it belongs to no block, or to several."""
    if "." in key or key in {*Config.model_fields, *MERGE_KEYS, *_UNCLEAR}:
        return key
    homes = [path[0] for path, _ in fields() if path[1:] == (key,)]
    if len(homes) > 1:
        homes = [block for block in homes if block not in _SECOND]
        homes = [block for block in homes if not misplaced(algorithm, block, key)] or homes
    return f"{homes[0]}.{key}" if len(homes) == 1 else key


def validate(tree: Node, seed: int | None, problems: list[Problem], *, runnable: str | None) -> Validated:
    """Draw and validate a tree, then each of its behaviours. runnable: as in `build`."""
    parts = _behaviours(tree, problems)
    whole = _with_seed(tree.without("ma_config"), seed)
    run_seed = whole.value_at(*SEED_PATH)
    drawn: dict[str, object] = {}
    for_memory: dict[str, object] = {}
    distributions: dict[str, Distribution] = {}

    def with_draws(subtree: Node, prefix: str) -> Node:
        """Lay the section memory below a tree, draw its ``random_params``, and collect both."""
        subtree, taken = lay_memory(subtree, run_seed, prefix)
        for_memory.update(taken)
        if any(RANDOM in block.children for block in subtree.children.values()):
            subtree, values, sources = draw(subtree, run_seed, prefix, problems)
            drawn.update(values)
            distributions.update(sources)
        return subtree

    trees = {"": with_draws(whole, "")}
    config = build(trees[""], problems, runnable=runnable)
    behaviours: dict[str, Config] = {}
    for name, part in parts.items():
        subtree = merge(whole.only(*BEHAVIOUR_KEYS), part)
        subtree = subtree if seed is None else _with_seed(subtree, seed)
        subtree = with_draws(subtree, f"ma_config.{name}.")
        trees[name] = merge(trees[""].without(*BEHAVIOUR_KEYS), subtree)
        behaviours[name] = build(trees[name], problems)
    return Validated(
        config=config,
        behaviours=behaviours,
        tree=tree,
        trees=trees,
        drawn=drawn,
        for_memory=for_memory,
        distributions=distributions,
    )


def build(tree: Node, problems: list[Problem], *, runnable: str | None = None) -> Config:
    """Validate ``tree``, which has no merge keys. Faults go to ``problems``; a refused key has its default.

    runnable: place to name an environment, for the message if there is none; None to accept that
    """
    values, refused = cast("dict[str, Any]", to_value(tree)), list[KeyPath]()
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        config, refused = without_faults(error, values, tree, problems)
    problems += [
        contradiction(paths, clash, tree)
        for paths, clash in contradictions_in(config)
        # a refused key has a default that nobody wrote
        if not any(path[: len(bad)] == bad for path in paths for bad in refused)
    ]
    if runnable is not None:
        problems += missing_environment(tree, refused, runnable)
    return config


def _with_seed(tree: Node, seed: int | None) -> Node:
    """Return the tree with ``seed``; if that is None, with the configured seed, or else with a fresh one."""
    if seed is None and tree.value_at(*SEED_PATH) is not None:
        return tree
    block = tree.find(SEED_PATH[:1])
    if block is not None and not block.is_mapping:
        return tree  # the check that follows refuses the block
    if seed is None:
        return merge(tree, from_value_at(SEED_PATH, secrets.randbelow(_FRESH_SEEDS), "a fresh seed"))
    return merge(tree, from_value_at(SEED_PATH, seed, flag_or_argument("--seed", "seed")))


def _behaviours(tree: Node, problems: list[Problem]) -> dict[str, Node]:
    """Return the entries of ``ma_config`` by behaviour, with only the keys that a behaviour may have."""
    node = tree.find(("ma_config",)) or Node(None)
    _check_mapping("ma_config", node, problems)
    parts: dict[str, Node] = {}
    for name, part in node.children.items():
        _check_mapping(f"ma_config.{name}", part, problems)
        for key, child in part.without(*BEHAVIOUR_KEYS).children.items():
            what = f"`ma_config.{name}.{key}` cannot be set for one behaviour"
            allowed = ", ".join(BEHAVIOUR_KEYS)
            why = f"a behaviour can set {allowed}; everything else applies to the whole run"
            fix = "remove it, or set it at the top level of the section"
            problems.append(Problem(what, child.where, why, fix))
        parts[name] = as_section(part.only(*BEHAVIOUR_KEYS), name, problems)
    return parts


def _check_mapping(path: str, node: Node, problems: list[Problem]) -> None:
    """Add a problem if a node of ``ma_config`` is neither a mapping nor empty."""
    if not node.is_mapping and node.value is not None:
        why = "ma_config maps the name of a behaviour to its own blocks"
        fix = "write ma_config: {behaviour: {sac_config: {...}}}, or null"
        problems.append(Problem(f"`{path}` is not a mapping", node.where, why, fix))
