"""Messages of ML-Agents' recorder, and the behaviour that they describe."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from algorithm.env.unity.package import load
from algorithm.env.unity.spaces import UnityBehaviour


class DemoMessages(NamedTuple):
    """Classes of the package's messages."""

    meta: Any  # DemonstrationMetaProto
    brain: Any  # BrainParametersProto
    pair: Any  # AgentInfoActionPairProto


def demo_messages() -> DemoMessages:
    """Return the messages of a ``.demo`` file. Raises EnvError without the right package."""
    load()
    found = {
        "demonstration_meta": "DemonstrationMetaProto",
        "brain_parameters": "BrainParametersProto",
        "agent_info_action_pair": "AgentInfoActionPairProto",
    }
    modules = (importlib.import_module(f"mlagents_envs.communicator_objects.{name}_pb2") for name in found)
    return DemoMessages(
        *(getattr(module, name) for module, name in zip(modules, found.values(), strict=True))
    )


def recorded_behaviour(brain: Any, info: Any) -> UnityBehaviour:  # noqa: ANN401 - protobuf messages
    """Return the behaviour of a file as a Unity environment gives it: names, shapes, dtypes, order of axes.

    brain: its parameters, in the present or the older form; info: an agent's first message
    Raises EnvError if there is nothing to observe or to do, and ValueError for what makes no sense.
    """
    from mlagents_envs.rpc_utils import behavior_spec_from_proto

    return UnityBehaviour(brain.brain_name, behavior_spec_from_proto(brain, info), info)
