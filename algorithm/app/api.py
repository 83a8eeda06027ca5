"""Training and acting from Python: what ``import asac`` offers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.agents.networks import pick_device
from algorithm.agents.roles import Agent
from algorithm.app.cli.flag_types import HUB, is_export
from algorithm.app.cli.train import TrainOptions, config_flags
from algorithm.app.console.output import open_console
from algorithm.app.play import LIMITS
from algorithm.app.resume import resume
from algorithm.app.sharing.export import build, write
from algorithm.app.sharing.opening import PlayableRun, open_export
from algorithm.config.errors import ConfigError
from algorithm.config.loader import LoadedConfig, load_config, load_config_file
from algorithm.config.locate import EnvFolder, find_env
from algorithm.config.yaml_io import inline
from algorithm.core.data import Float
from algorithm.core.errors import UsageError, visible
from algorithm.core.program import as_typed
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.env.adapter import Adapter
from algorithm.env.observations import frame_stack
from algorithm.env.registry import find_recipe
from algorithm.evaluation.evaluate import EvalPolicy, Performance
from algorithm.evaluation.evaluate import evaluate as play_episodes
from algorithm.evaluation.length import cut_off_line, episode_limit
from algorithm.experience.faults import Faults
from algorithm.nn.process import set_up_process
from algorithm.replay.budget import MemoryBudget
from algorithm.runs.checkpoints.checkpoint import Checkpoint
from algorithm.runs.logs.metrics import read_metrics
from algorithm.runs.names import MODELS
from algorithm.runs.rundir import RunDir
from algorithm.train.assembly import close_env, load_networks_into, make_agents
from algorithm.train.assembly import make_env as make_vec_env
from algorithm.train.callbacks import Callback, OnStep, Training
from algorithm.train.session import train as train_run

Which = Literal["best", "latest"] | int
"""Checkpoint: ``best`` by evaluation, ``latest``, or the one of a step."""


def train(  # noqa: PLR0913 - flags of the command, by keyword
    task: str,
    *,
    config: str | None = None,
    overrides: Mapping[str, object] | None = None,
    preset: str | None = None,
    name: str | None = None,
    max_step: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    directory: str | Path = MODELS,
    callbacks: Sequence[Callback] = (),
    on_step: Callable[[Training], object] | None = None,
    quiet: bool = False,
) -> Run:
    """Train as ``asac TASK`` does, and return the run.

    task:      as on the command line: a folder, an id of Gymnasium, ``module:Id`` or ``file.py:Id``
    config:    section or file; the section ``default`` without it
    overrides: key → value, such as ``{"sac_config.n_step": 3}``
    directory: folder of all runs
    callbacks: called behind those of the configuration; on_step: a function instead of a whole class
    quiet:     print warnings and the result alone

    Raises ConfigError with every fault of the configuration, UsageError, EnvError, StorageError and
    NumericalError as the command does, CallbackError for whatever a callback raises.
    """
    options = TrainOptions(
        env=task,
        config=config,
        overrides=tuple(f"{key}={inline(value)}" for key, value in (overrides or {}).items()),
        preset=preset,
        name=name,
        max_step=max_step,
        seed=seed,
        device=device,
        directory=Path(directory),
        quiet=quiet,
    )
    loaded = load_config(
        task, config, options.overrides, config_flags(options), seed=seed, require_runnable=True
    )
    trained = train_run(options, loaded, ["python", task], callbacks=_all(callbacks, on_step))
    return Run(trained.run.path)


class Run:
    """A training on the disk: its settings, results and checkpoints.

    folder: of the run; or an export of one, ``FILE.zip`` or ``hf://OWNER/NAME``, whose policy can be loaded
            and evaluated. Every byte of it is verified.
    trust:  run the code that an export brings or names
    Raises UsageError for a folder without a run and for code that is not trusted, StorageError for an export
    that is not what was written.
    """

    def __init__(self, folder: str | Path, *, trust: bool = False) -> None:
        self._export = open_export(str(folder), trust=trust) if is_export(str(folder)) else None
        if self._export is not None:
            self._dir, self.folder = self._export.run, self._export.run.path
            return
        self.folder = Path(folder).resolve()
        config = self.folder / "config.yaml"
        if not config.is_file():
            raise UsageError(
                f"{folder} is no run",
                where=self.folder,
                why="it has no config.yaml",
                fix="give the folder of a run, such as models/CartPole-v1/NAME",
            )
        label = config.read_text("utf-8").partition("\n")[0].removeprefix("# ").partition(":")[0]
        self._dir = RunDir(label, self.folder.name, self.folder, label)

    @override
    def __repr__(self) -> str:
        return f"Run({str(self._export.source if self._export else self.folder)!r})"

    @property
    def result(self) -> Mapping[str, Any]:
        """Content of ``result.json``: steps, updates, evaluations. StorageError if it has not ended."""
        return self._dir.read_result()

    @property
    def metrics(self) -> dict[str, list[float]]:
        """Table of all logged metrics: name → values, ``step`` among them; nan where a row has none."""
        self._refuse_export("metrics")
        return read_metrics(self._dir.metrics_jsonl)

    @property
    def report(self) -> Path:
        """The page on this run."""
        self._refuse_export("report")
        return self.folder / "report.html"

    def policy(self, checkpoint: Which = "best", *, device: str = "cpu") -> TrainedPolicy:
        """Return the policy of a checkpoint; see :func:`load`."""
        return load(self, checkpoint, device=device)

    def make_env(self) -> Any:  # noqa: ANN401 - gymnasium leaves an environment's types open
        """Return the run's environment in its wrappers, as evaluations step it."""
        return _make(self._loaded(), "evaluate")

    def export(self, file: str | Path, checkpoint: Which = "best", *, replace: bool = False) -> Path:
        """Write the run as one file to share, as ``--export`` does; return its path.

        Raises UsageError if there is a file of that name, unless ``replace``; StorageError.
        """
        self._refuse_export("export")
        write(self._dir, checkpoint, Path(file), replace=replace, warn=_warn)
        return Path(file)

    def push(self, repository: str, checkpoint: Which = "best", *, private: bool = False) -> str:
        """Put an export on the Hugging Face hub, as ``--push`` does; return its address.

        repository: ``OWNER/NAME``
        """
        self._refuse_export("push")
        built = build(self._dir, checkpoint, source=f"{HUB}{repository}", warn=_warn)
        return built.upload(repository, private=private)

    def evaluate(self, episodes: int = 10, checkpoint: Which = "best", *, device: str = "cpu") -> Performance:
        """Play episodes with the deterministic policy, as ``--eval`` does; return returns and lengths."""
        loaded, saved = self._loaded(), self._found.checkpoint(checkpoint, warn=_warn)
        with ExitStack() as stack:
            console = stack.enter_context(open_console(quiet=True))
            env = make_vec_env(loaded, "evaluate", 1, faults=Faults(console))
            stack.callback(close_env, env, console.warn)
            agents = self._acting_agents(loaded, env.specs, saved, device)
            players = {
                name: EvalPolicy(agent.new_policy("playing"), greedy=True) for name, agent in agents.items()
            }
            limit = episode_limit(loaded.config, env.time_limit)
            found = play_episodes(env, players, episodes, length_limit=limit)
            assert found is not None, "nothing stops it"
            if line := cut_off_line(found.values(), loaded.config, env.time_limit):
                console.warn(line)
        return next(iter(found.values()))

    def resume(
        self,
        *,
        max_step: int | None = None,
        overrides: Mapping[str, object] | None = None,
        callbacks: Sequence[Callback] = (),
        on_step: Callable[[Training], object] | None = None,
        device: str = "auto",
        quiet: bool = False,
    ) -> Run:
        """Go on with the training from its newest checkpoint, as ``--resume`` does; return the run."""
        self._refuse_export("resume")
        options = TrainOptions(
            env=self._dir.env,
            name=self.folder.name,
            overrides=tuple(f"{key}={inline(value)}" for key, value in (overrides or {}).items()),
            max_step=max_step,
            device=device,
            directory=self._dir.models,
            resume=True,
            quiet=quiet,
        )
        folder = self._task_folder()
        resume(options, folder, ["python", self._dir.env], callbacks=_all(callbacks, on_step))
        return self

    def _loaded(self) -> LoadedConfig:
        folder = self._task_folder()
        return load_config_file(self._dir.config, LIMITS, env=folder, require_runnable=True)

    def _task_folder(self) -> EnvFolder:
        """Return the task's folder; of a task that is not here the run's own, of an export the current one.

        What is imported later is looked for there, too, and the folder of an export does not stay.
        """
        try:
            folder = find_env(self._dir.env)
        except ConfigError:
            folder = EnvFolder(Path.cwd() if self._export else self._dir.path, self._dir.env)
        return self._found.task(folder)

    @property
    def _found(self) -> PlayableRun:
        return PlayableRun(self._dir, self._dir, self._export)

    def _acting_agents(
        self, loaded: LoadedConfig, specs: Mapping[str, AgentSpec], saved: Checkpoint, device: str
    ) -> Mapping[str, Agent]:
        set_up_process(loaded.threads)
        memory = MemoryBudget(free=sys.maxsize)  # nothing is stored
        with self._found.fitting(specs):
            agents = make_agents(
                loaded, specs, self.folder, pick_device(device), memory=memory, learning=False
            )
            load_networks_into(agents, saved)
        return agents

    def _refuse_export(self, wanted: str) -> None:
        if self._export is None:
            return
        raise UsageError(
            f"an export has no {wanted}",
            where=self._export.source,
            why="it holds networks and configuration, and neither optimiser, replay nor metrics",
            fix=f"use the run's own folder, where it was trained: it is called {self._export.manifest.name}",
        )


@dataclass(frozen=True)
class PolicyState:
    """Memory of a policy of N agents between two steps."""

    prev_action: Float  # [N, A]
    carry: Float  # [N, *C]

    def replaced(self, other: PolicyState, rows: NDArray[np.bool_]) -> PolicyState:
        """Return it with some rows, [N], of another one."""
        wide = rows.reshape(-1, *[1] * (self.carry.ndim - 1))
        actions = np.where(rows[:, None], other.prev_action, self.prev_action)
        return PolicyState(actions, np.where(wide, other.carry, self.carry))


class TrainedPolicy:
    """A trained policy that acts in the spaces of its own environment.

    observation_space, action_space: of the environment in its wrappers · step: of the checkpoint
    """

    def __init__(self, env: gym.Env[Any, Any], agent: Agent, adapter: Adapter, step: int) -> None:
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.step = step
        self._policy, self._adapter = agent.new_policy("playing"), adapter
        self._spec = adapter.spec
        name, shape = self._spec.obs.names[0], self._spec.obs.shapes[0]
        self._first, self._dims = name, len(shape)

    @override
    def __repr__(self) -> str:
        return f"Policy(step={self.step}, {self.observation_space} -> {self.action_space})"

    def act(
        self,
        obs: Any,  # noqa: ANN401 - a space may hold anything
        state: PolicyState | None = None,
        deterministic: bool = True,
        info: Mapping[str, Any] | None = None,
        episode_start: Sequence[bool] | NDArray[np.bool_] | None = None,
    ) -> tuple[Any, PolicyState]:
        """Return the action for an observation and what is to be handed in with the next one.

        obs:   as the environment returns it; or of N environments, each leaf [N, ...], as vector classes do
        state: of the step before; None at the start of an episode
        info:  of the environment, where that holds the ``action_mask``
        episode_start: [N] whose episodes begin with this observation, so that their state does not count
        The action is the environment's: one, or leaf by leaf [N, ...]. Raises SpaceMismatchError for an
        observation of other shapes.
        """
        first = self._adapter.observations.read(obs)[self._first]
        single = np.ndim(first) == self._dims
        if single:
            read = self._adapter.observations.read_each([obs])
            mask = self._adapter.masks.read(obs, info or {}, over=False)
            allowed = self._spec.action.all_allowed(1) if mask is None else mask[None]
        else:
            n = len(first)
            read = self._adapter.observations.read_batch(obs, n)
            masks = self._adapter.masks.read_batch(obs, info or {}, np.zeros(n, np.bool_))
            allowed = self._spec.action.all_allowed(n) if masks is None else masks
        n = len(allowed)
        fresh = PolicyState(self._spec.action.padding(n), self._policy.initial_carry(n))
        if state is None:
            state = fresh
        elif episode_start is not None:
            state = state.replaced(fresh, np.asarray(episode_start, np.bool_))
        found = self._policy.act(read, state.prev_action, state.carry, allowed, greedy=deterministic)
        action = self._adapter.actions.to_env(found.action[0] if single else found.action)
        return action, PolicyState(found.action, found.carry)


def load(
    run: Run | str | Path, checkpoint: Which = "best", *, device: str = "cpu", trust: bool = False
) -> TrainedPolicy:
    """Load the policy of a run: ``load("models/CartPole-v1/NAME").act(obs)``.

    run: or its folder, or an export of it; trust: see :class:`Run`
    Every byte of the checkpoint is verified. The environment is built once, for its spaces. Raises UsageError
    for a folder that is no run and for a Unity player, StorageError if there is no such checkpoint.
    """
    run = run if isinstance(run, Run) else Run(run, trust=trust)
    loaded, saved = run._loaded(), run._found.checkpoint(checkpoint, warn=_warn)
    env = _make(loaded, "evaluate")
    try:
        adapter = Adapter(env.observation_space, env.action_space, str(env), stack=frame_stack(env))
        specs = {DEFAULT_BEHAVIOUR: adapter.spec}
        agents = run._acting_agents(loaded, specs, saved, device)
        return TrainedPolicy(env, agents[DEFAULT_BEHAVIOUR], adapter, saved.step)
    finally:
        env.close()


def make_env(task: str, *, config: str | None = None, overrides: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401 - gymnasium leaves an environment's types open
    """Return the environment of a task in its wrappers, as a training would step it."""
    words = tuple(f"{key}={inline(value)}" for key, value in (overrides or {}).items())
    return _make(load_config(task, config, words, seed=0, require_runnable=True), "train")


def check(task: str, *, config: str | None = None, quiet: bool = False) -> bool:
    """Look for what would keep an environment from being learned, as ``--check`` does.

    It runs in a process of its own, and prints what it finds. Returns whether nothing of that is an error.
    """
    words = [sys.executable, "-m", "asac", task, "--check"]
    words += [] if config is None else ["-c", config]
    words += ["--quiet"] * quiet
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(words, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}).returncode == 0


def _all(callbacks: Sequence[Callback], on_step: Callable[[Training], object] | None) -> list[Callback]:
    return [*callbacks, *([OnStep(on_step)] if on_step is not None else [])]


def _make(loaded: LoadedConfig, purpose: Literal["train", "evaluate"]) -> gym.Env[Any, Any]:
    base = loaded.config.base_config
    if base.env_type == "UNITY":
        raise UsageError(
            f"{base.env_type} environments are played by the command line alone",
            where=loaded.env_label,
            why="a player is no Gymnasium environment",
            fix=as_typed("python main.py TASK -n NAME --run or --eval N"),
        )
    recipe = find_recipe(
        base.env_type,
        base.env_name,
        folder=loaded.env_dir,
        env_args=base.env_args,
        options=loaded.config.reset_config,
        wrappers=loaded.config.wrappers_for(purpose),
    )
    return recipe.make_gym_env()


def _warn(text: str) -> None:
    print(f"warning: {visible(text)}", file=sys.stderr)
