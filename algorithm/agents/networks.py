"""Construction of device, networks and extensions, which every family's agent needs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from algorithm.agents.base import Family
from algorithm.agents.roles import Inputs
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream_seed
from algorithm.core.spec import AgentSpec
from algorithm.extensions import make_extensions
from algorithm.extensions.base import Build, Demonstrated, Extension
from algorithm.keys.behaviour import BehaviourConfig
from algorithm.nn.loader import Network, Networks, load_networks
from algorithm.nn.protocols import HybridAction, Obs


def pick_device(name: str, *, suits_gpu: bool = False) -> torch.device:
    """Return the torch device for ``cpu``, ``cuda``, ``cuda:1``, ``gpu`` (= cuda) or ``auto``.

    suits_gpu: ``auto`` chooses a GPU if there is one. Raises UsageError for an unknown or missing device.
    """
    if name == "auto":
        return torch.device("cuda" if suits_gpu and torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name.replace("gpu", "cuda"))
    except RuntimeError as error:
        raise UsageError(f"there is no device {name!r}", fix="use cpu, cuda, cuda:1, gpu or auto") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device {name} was requested, but there is no such GPU",
            why=f"torch {torch.__version__} sees {torch.cuda.device_count()} GPUs",
            fix="use cpu, or auto to use a GPU if there is one",
        )
    return device


def suits_gpu(family: Family, config: BehaviourConfig, spec: AgentSpec) -> bool:
    """Return whether updates learn from images, or are large enough to be faster on a GPU than on a CPU."""
    critic = config.nn_config.q or {}
    hidden = critic.get("hidden") or critic.get("dense_n")
    widths = [width for width in (hidden if isinstance(hidden, list) else [hidden]) if isinstance(width, int)]
    inside = max(widths or [256]) * (4 if critic.get("block") in ("inverted", "residual") else 1)
    return family.processes(config) == 1 and (
        bool(spec.obs.images)
        or config.replay_config.on_device
        or inside * family.rows(config) >= (2**17 if config.run.compile == "off" else 2**15)  # as measured
    )


def extensions_of(
    inputs: Inputs, networks: Networks, demonstrations: Demonstrated | None = None
) -> tuple[Extension, ...]:
    """Build the extensions with random numbers of their own: the initial critics do not depend on them."""
    config = inputs.config
    build = Build(
        spec=inputs.spec,
        state_size=networks.state_size,
        options=config.run,
        signals=config.reward_signals,
        demonstrations=demonstrations,
        make_network=networks.make,
    )
    with torch.random.fork_rng():
        _seed(inputs, "extensions")
        return make_extensions(build)


def make_networks(inputs: Inputs, classes: Mapping[str, Network]) -> Networks:
    """Build the networks of a behaviour, one of each kind.

    classes: those of the family, see :attr:`algorithm.agents.base.Family.networks`
    """
    _seed(inputs, "networks")
    run = inputs.config.run
    return load_networks(
        inputs.spec,
        inputs.nn_file,
        classes,
        seq_encoder=run.seq_encoder,
        context=run.burn_in_step + 1,
        critic_only=run.critic_observations,
        **dict(inputs.config.nn_config),
    )


def _seed(inputs: Inputs, purpose: str) -> None:
    """Seed torch for initial networks by ``network_seed``, or by the run's seed if that is not set."""
    network_seed = inputs.config.run.network_seed
    torch.manual_seed(
        stream_seed(inputs.seed if network_seed is None else network_seed, purpose, inputs.behaviour)
    )


def policy_in_windows(policy: nn.Module, state: Tensor, obs: Obs) -> HybridAction:
    """Return a policy's distributions [B, T, ...] in states [B, T, S]; obs: [B, T, ...] by name."""
    flat = {name: x.flatten(0, 1) for name, x in obs.items()}
    distribution: HybridAction = policy(state.flatten(0, 1), flat)
    return distribution.map(lambda x: x.unflatten(0, state.shape[:2]))
