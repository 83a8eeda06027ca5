"""Classes of the protocol's messages, from the installed package by this project's loader."""

from __future__ import annotations

from algorithm.extras.unity import package

package.load()

from mlagents_envs.communicator_objects.agent_info_pb2 import AgentInfoProto  # noqa: E402
from mlagents_envs.communicator_objects.brain_parameters_pb2 import BrainParametersProto  # noqa: E402
from mlagents_envs.communicator_objects.capabilities_pb2 import UnityRLCapabilitiesProto  # noqa: E402
from mlagents_envs.communicator_objects.observation_pb2 import ObservationProto  # noqa: E402
from mlagents_envs.communicator_objects.unity_input_pb2 import UnityInputProto  # noqa: E402
from mlagents_envs.communicator_objects.unity_message_pb2 import UnityMessageProto  # noqa: E402
from mlagents_envs.communicator_objects.unity_output_pb2 import UnityOutputProto  # noqa: E402
from mlagents_envs.communicator_objects.unity_rl_initialization_input_pb2 import (  # noqa: E402
    UnityRLInitializationInputProto,
)
from mlagents_envs.side_channel import IncomingMessage, OutgoingMessage  # noqa: E402

RESET, QUIT = 1, 2  # commands of the trainer; 0 is a step

__all__ = [
    "QUIT",
    "RESET",
    "AgentInfoProto",
    "BrainParametersProto",
    "IncomingMessage",
    "ObservationProto",
    "OutgoingMessage",
    "UnityInputProto",
    "UnityMessageProto",
    "UnityOutputProto",
    "UnityRLCapabilitiesProto",
    "UnityRLInitializationInputProto",
]
