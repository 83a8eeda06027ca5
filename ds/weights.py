"""The parts of a learner's networks that actors need: as bytes and back, published, loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import safetensors.torch
import torch
from torch import Tensor, nn

from algorithm.agents.base import Agent
from ds.service import ParameterStore

CHUNK = 2**20
"""Size of a piece in bytes, far below every limit of the transport."""

_VERSION_BYTES = 8

Parts = Mapping[str, nn.Module]


def packed(behaviours: Mapping[str, Parts]) -> bytes:
    """Return all parts of all behaviours as one safetensors file on the CPU."""
    tensors = {
        f"{behaviour}/{part}/{name}": tensor.detach().to("cpu", copy=True).contiguous()
        for behaviour, parts in behaviours.items()
        for part, module in parts.items()
        for name, tensor in module.state_dict().items()
    }
    return safetensors.torch.save(tensors)


def unpack(payload: bytes, behaviours: Mapping[str, Parts]) -> None:
    """Load what :func:`packed` made into modules of the same shapes. ValueError for anything else."""
    try:
        tensors = safetensors.torch.load(payload)
    except safetensors.SafetensorError as error:
        raise ValueError(f"weights are not a safetensors file: {error}") from error
    for behaviour, parts in behaviours.items():
        for part, module in parts.items():
            _load(module, tensors, f"{behaviour}/{part}/")
    if tensors:
        raise ValueError(f"weights hold {next(iter(tensors))!r}, which is unknown here")


def _load(module: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    state = {
        name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)
    }
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"weights do not fit {prefix[:-1]}: {error}") from error


def chunks(version: int, payload: bytes) -> list[bytes]:
    """Split version and payload into pieces."""
    whole = version.to_bytes(_VERSION_BYTES, "big") + payload
    return [whole[start : start + CHUNK] for start in range(0, len(whole), CHUNK)]


class WeightPublisher:
    """Publisher of weights to the parameter store, whenever an agent has a new version of them.

    always: at every call: a synchronous actor waits for them after each step
    """

    def __init__(self, parameters: ParameterStore, agents: Mapping[str, Agent], *, always: bool) -> None:
        self._parameters, self._agents, self._always = parameters, agents, always
        self._published: list[int] = []
        self._parts = {name: agent.acting_parts() for name, agent in agents.items()}

    def publish_if_due(self) -> None:
        """Publish if it is due, between two steps; the first call always does."""
        warming_up = {name: agent.policy.warming_up for name, agent in self._agents.items()}
        self._parameters.warming_up = warming_up
        versions = [agent.weights_version for agent in self._agents.values()]
        if self._always or versions != self._published:
            self._published = versions
            version = self._parameters.next_version
            self._parameters.publish(version, chunks(version, packed(self._parts)))


def load(pieces: Sequence[bytes], behaviours: Mapping[str, Parts]) -> int:
    """Load received weights into an actor's networks; return their version.

    ValueError, and possibly mixed networks, if they do not fit.
    """
    whole = b"".join(pieces)
    with torch.no_grad():
        unpack(whole[_VERSION_BYTES:], behaviours)
    return int.from_bytes(whole[:_VERSION_BYTES], "big")
