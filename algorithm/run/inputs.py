"""The inputs of a training, and the set-up of its process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import Config
from algorithm.core.errors import COMMON_BLOCK
from algorithm.env.env_id import resolve_env_id
from algorithm.env.objects import EnvObject
from algorithm.env.parameters.config import last_lessons
from algorithm.env.registered import reward_threshold
from algorithm.env.wrappers import resolve_wrappers
from algorithm.nn.process import set_up_process
from algorithm.run.callbacks import Callback
from algorithm.run.signals import StopRequest
from algorithm.store.rundir import RunDir


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """Everything that decides a training, as values.

    run:         folder of the run
    device:      of the networks, by name
    arguments:   the command line, for the manifest
    flags:       dotted path → value of changes to a resumed run that are not overrides
    env_object:  environments that were passed as Python objects
    callbacks:   called after those of the configuration
    evaluations: number of evaluations of the whole run after which it ends; None for no limit
    init_from:   networks that a resumed run goes on with, in the form of ``base_config.init_from``
    task_nn:     a resumed run takes ``nn.py`` of its task, and not the copy in its folder
    greedy:      agents act without sampling
    render:      show the environment
    stop:        becomes true when the training is to end
    """

    loaded: LoadedConfig
    run: RunDir
    device: str
    arguments: Sequence[str] = ()
    flags: Mapping[str, object] = field(default_factory=dict)
    env_object: EnvObject | None = None
    callbacks: Sequence[Callback] = ()
    evaluations: int | None = None
    init_from: str | None = None
    task_nn: bool = False
    greedy: bool = False
    render: bool = False
    stop: StopRequest = field(default_factory=StopRequest)


def set_up(loaded: LoadedConfig) -> LoadedConfig:
    """Set the number of torch's threads; return the configuration with ``auto`` resolved.

    ``stop_at_return: auto`` becomes a number or null, and ``start_step`` 0 if no random actions come first.
    :func:`~.context.fitted` resolves the rest.
    """
    if loaded.config.base_config.stop_at_return == "auto":
        solved = _solved_at(loaded)
        loaded = loaded.resolved("base_config", lambda _: {"stop_at_return": solved})
    loaded = loaded.resolved(COMMON_BLOCK, _random_steps)
    set_up_process(loaded.config.run.threads)
    return loaded


def _random_steps(config: Config) -> dict[str, object]:
    """Return ``start_step`` 0 for a training without random actions at first, else nothing."""
    return {"start_step": 0} if config.demonstrations.without_random else {}


def _solved_at(loaded: LoadedConfig) -> float | None:
    """Return the environment's reward threshold; None without it or evaluations, or in early lessons."""
    config, folder = loaded.config, loaded.env_dir
    early = config.eval_config.lesson == "current" and last_lessons(config.parameters)
    if early or not config.base_config.kind.registered or not config.evaluates_on_the_way:
        return None
    wrappers = resolve_wrappers(config.wrappers_for("evaluate"), folder)
    return reward_threshold(resolve_env_id(config.base_config.env_name, folder), wrappers)
