"""Content of a trainer configuration of ML-Agents, moved into the layout of its newest release.

Up to release 0.16 keys of a behaviour stood side by side, behaviours at the top beside ``default``, and
samplers and curricula in files of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from algorithm.config.sections import DEFAULT_SECTION
from algorithm.config.tree import Node, merge
from algorithm.extras.mlagents.parameters import curricula_of, is_curricula, is_samplers, samplers_of

_NAMES = {
    "hyperparameters": (
        *("batch_size", "buffer_size", "learning_rate", "learning_rate_schedule", "beta", "epsilon", "lambd"),
        *("num_epoch", "buffer_init_steps", "init_entcoef", "tau", "save_replay_buffer", "steps_per_update"),
        *("num_update", "train_interval", "target_entropy", "reward_signal_steps_per_update"),
    ),
    "network_settings": ("hidden_units", "num_layers", "normalize", "vis_encode_type"),
    "network_settings.memory": ("memory_size", "sequence_length"),
}
OLD: Mapping[str, str] = {
    **{name: f"{block}.{name}" for block, names in _NAMES.items() for name in names},
    "trainer": "trainer_type",
    "pretraining": "behavioral_cloning",
    "gamma": "reward_signals.extrinsic.gamma",
    "use_recurrent": "network_settings.memory",
    "use_curiosity": "reward_signals.curiosity",
    "curiosity_strength": "reward_signals.curiosity.strength",
    "curiosity_enc_size": "reward_signals.curiosity.encoding_size",
}
"""Key of a behaviour up to 0.16 -> its place in newer releases."""

_SWITCHES = {
    "use_recurrent": ("memory_size", "sequence_length"),
    "use_curiosity": ("curiosity_strength", "curiosity_enc_size"),
}
"""Key that switches others on -> those others."""

TOP = ("env_settings", "engine_settings", "checkpoint_settings", "torch_settings", "debug")


IdleKey: TypeAlias = tuple[str, Node, str]
"""A key, its value, and why it has no effect."""


@dataclass(frozen=True, kw_only=True)
class TrainerFile:
    """Content of a trainer configuration.

    sections:   name of the section to write -> its behaviours by name
    run:        settings of the run, unchanged
    parameters: ``environment_parameters``; None without any
    unused:     name of a section -> keys of the file without an effect
    unknown:    unknown keys at the top, and behaviours that are not blocks of keys
    """

    sections: dict[str, dict[str, Node]]
    run: Node
    parameters: Node | None = None
    unused: dict[str, list[IdleKey]] = field(default_factory=dict)
    unknown: dict[str, Node] = field(default_factory=dict)


def read_layout(root: Node) -> TrainerFile:
    """Return the content of a file of any release, in the newest layout. Raises ConfigError."""
    if is_samplers(root):
        parameters, interval = samplers_of(root)
        unused = {DEFAULT_SECTION: interval}
        return TrainerFile(sections={DEFAULT_SECTION: {}}, run=Node({}), parameters=parameters, unused=unused)
    if is_curricula(root):
        return TrainerFile(sections={DEFAULT_SECTION: {}}, run=Node({}), parameters=curricula_of(root))
    known = root.children.keys() & {"behaviors", "default_settings", "environment_parameters", *TOP}
    return _by_blocks(root) if known else _flat(root)


KNOWN = (
    "behaviors",
    "default_settings",
    "environment_parameters",
    "curriculum",
    "parameter_randomization",
    *TOP,
)
"""Names at the top of a file."""


def _by_blocks(root: Node) -> TrainerFile:
    """Return the content of a file with the blocks that ML-Agents has since 0.17."""
    base = root.find(("default_settings",)) or Node({})
    behaviours = root.find(("behaviors",)) or Node({})
    unused: list[IdleKey] = []
    merged: dict[str, Node] = {}
    no_block = {
        f"behaviors.{name}": block
        for name, block in behaviours.children.items()
        if not block.is_mapping and block.value is not None
    }
    lessons = dict((root.find(("curriculum",)) or Node({})).children)
    for name, node in behaviours.children.items():
        merged[name] = merge(
            in_newest_layout(base, unused), in_newest_layout(node.without("curriculum"), unused)
        )
        if (inside := node.find(("curriculum",))) is not None:
            lessons[name] = inside
    if not merged and base.children:
        merged[""] = in_newest_layout(base, unused)
    parameters = root.find(("environment_parameters",))
    if (old := root.find(("parameter_randomization",))) is not None:
        made, interval = samplers_of(old)
        parameters, unused = merge(parameters or Node({}), made), [*unused, *interval]
    if lessons:
        parameters = merge(parameters or Node({}), curricula_of(Node(lessons)))
    return TrainerFile(
        sections={DEFAULT_SECTION: merged},
        run=root.only(*TOP),
        parameters=parameters,
        unused={DEFAULT_SECTION: unused},
        unknown=root.without(*KNOWN).children | no_block,
    )


def _flat(root: Node) -> TrainerFile:
    """Return the content of a file up to 0.16: a section for each behaviour, as they are of many scenes."""
    base = root.find((DEFAULT_SECTION,)) or Node({})
    unknown = {name: node for name, node in root.children.items() if not node.is_mapping}
    behaviours = root.without(DEFAULT_SECTION, *unknown).children or {"": Node({})}
    sections: dict[str, dict[str, Node]] = {}
    unused: dict[str, list[IdleKey]] = {}
    for name, node in behaviours.items():
        section = name if len(behaviours) > 1 else DEFAULT_SECTION
        whole = Node({**base.children, **node.children}, node.where if name else base.where)
        sections[section] = {name: in_newest_layout(whole, unused.setdefault(section, []))}
    return TrainerFile(sections=sections, run=Node({}), unused=unused, unknown=unknown)


def in_newest_layout(node: Node, unused: list[IdleKey]) -> Node:
    """Return a behaviour with its keys where the newest release has them; append idle ones to ``unused``."""
    off = [key for key in _SWITCHES if key in node.children and node.children[key].value is not True]
    for key in off:
        unused.append((key, node.children[key], "left out"))
        idle = [name for name in _SWITCHES[key] if name in node.children]
        unused.extend((name, node.children[name], f"{key} is false") for name in idle)
    left = node.without(*off, *(name for key in off for name in _SWITCHES[key]))
    result = Node({}, node.where)
    for key, child in sorted(left.children.items(), key=lambda item: item[0] == "reward_signals"):  # it wins
        path = OLD.get(key, key).split(".")
        value = Node({}, child.where) if key in _SWITCHES else child
        for name in reversed(path):
            value = Node({name: value}, child.where)
        result = merge(result, value)
    return result


def leaves(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the dotted keys of a behaviour with their values, except null ones."""
    for path, child in node.leaves():
        if child.value is not None:
            yield ".".join(path), child
