"""Several kinds of agents in one environment: each has its own agent, files and curves."""

import json
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open

from algorithm.app.cli.parsing import parse_args
from algorithm.app.train import resume, train
from algorithm.config.loader import load_config
from algorithm.config.locate import find_env
from algorithm.core.data import State
from algorithm.core.errors import UsageError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.env.base import Observation, ResetResult, StepResult, VecEnv
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults
from algorithm.run.inputs import set_up
from algorithm.run.runtime import check_together, is_offline
from algorithm.store.checkpoints.checkpoint import load_checkpoint
from algorithm.store.logs.metrics import read_metrics
from tests.lib.agreement import what_must_agree

CONFIG = """\
default:
  base_config: {env_type: GYM, env_name: two_kinds, max_step: 60, reset_on_iteration: false}
  nn_config: {q: {dense_n: 8}, policy: {dense_n: 8}}
  sac_config: {batch_size: 8, start_step: 10, write_summary_per_step: 30, save_model_per_step: 60}
  replay_config: {capacity: 500, beta_increment_per_sampling: 0.001} # not annealed to max_step, which grows
  eval_config: {per_step: -1, episodes: 2}
  ma_config:
    walker: {sac_config: {n_step: 1}}
"""


class TwoKinds(VecEnv):
    """Two walkers with two observations and one action, one runner with one and two; episodes of 7 steps."""

    arrangement = "1 of two kinds"
    render_modes = ()
    time_limit = 7

    def __init__(self) -> None:
        self.specs = {
            "walker": AgentSpec(ObsSpec(("obs",), ((2,),), ("float32",)), ActionSpec(continuous=1)),
            "runner": AgentSpec(ObsSpec(("obs",), ((1,),), ("float32",)), ActionSpec(continuous=2)),
        }
        self._ids = {"walker": np.array([0, 1]), "runner": np.array([2])}
        self._step = 0

    def reset(self, indices=None, *, episode=None):
        self._step = 0
        return {name: ResetResult(**self._seen(name)) for name in self.specs}

    def step(self, actions):
        self._step += 1
        shapes = {name: (len(ids), self.specs[name].action.size) for name, ids in self._ids.items()}
        assert {name: action.shape for name, action in actions.items()} == shapes
        ended = self._step == 7
        final = {name: Observation(**self._seen(name)) for name in self.specs} if ended else {}
        if ended:
            self._step = 0
        return {
            name: StepResult(
                **self._seen(name),
                reward=actions[name][:, 0],
                terminated=np.full(len(ids), ended),
                truncated=np.zeros(len(ids), bool),
                final=final.get(name),
            )
            for name, ids in self._ids.items()
        }

    def metrics(self):
        return {}

    def state(self):
        return State(meta={"step": self._step})

    def resume(self, state):
        self._step = state.meta["step"]
        return {}

    def trace(self, agent):
        return None

    def close(self) -> None:
        pass

    def _seen(self, name):
        ids, shape = self._ids[name], self.specs[name].obs.shapes[0]
        obs = np.full((len(ids), *shape), self._step, np.float32)
        return {"ids": ids, "obs": {"obs": obs}, "action_mask": self.specs[name].action.all_allowed(len(ids))}


@pytest.fixture
def trained(cwd, monkeypatch):
    monkeypatch.setattr(RunContext, "env", lambda *args, **options: TwoKinds())
    (cwd / "task").mkdir()
    (cwd / "task" / "config.yaml").write_text(CONFIG)
    loaded = load_config("./task", flags={"base_config.name": "a"}, seed=1)
    train(parse_args(["./task", "--device=cpu", "--quiet"]), loaded)
    return cwd / "models" / "task" / "a", loaded


def test_each_behaviour_is_trained_evaluated_and_saved_by_itself(trained):
    folder, loaded = trained
    result = json.loads((folder / "result.json").read_text())
    assert set(result["behaviours"]) == {"walker", "runner"}
    # each begins after 10 of its own transitions: two of three are the walkers'
    assert result["updates"] == (40 - 10) + (20 - 10) and result["steps"] == 60
    means = [result["behaviours"][name]["last_eval"]["mean"] for name in ("walker", "runner")]
    assert result["last_eval"]["mean"] == pytest.approx(sum(means) / 2)
    own = {name: (each["steps"], each["updates"]) for name, each in result["behaviours"].items()}
    assert own == {"walker": (40, 30), "runner": (20, 10)}
    columns = read_metrics(folder / "metrics.jsonl")
    assert columns["walker/replay/size"][-1] > 40 > columns["runner/replay/size"][-1], "a step is one agent's"
    assert {"walker/loss/q", "runner/loss/q", "walker/eval/return_mean"} <= set(columns)
    assert "runner/vtrace/rho_mean" in columns and "walker/vtrace/rho_mean" not in columns
    assert list((folder / "log" / "runner").glob("events.*"))

    path = folder / "checkpoints" / "step_000000060"
    saved = load_checkpoint(path)
    assert {"walker/model", "runner/model"} <= set(saved.tensors)
    with ExitStack() as stack:
        context = RunContext(loaded=set_up(loaded), device="cpu", faults=Faults(None), stack=stack)
        agents = context.players(TwoKinds().specs, folder, saved)
    for name, agent in agents.items():
        for key, value in agent.learner.tensors()["model"].items():
            assert np.array_equal(value.numpy(), saved.tensors[f"{name}/model"][key].numpy())
        with safe_open(path / f"{name}/model.safetensors", "pt") as file:
            assert file.metadata() == {"trained": json.dumps(sorted(agent.learner.trained()))}


@pytest.mark.parametrize("alone", ["walker", "runner"])
def test_behaviours_learn_offline_together_or_not_at_all(trained, alone):
    """Also the one that ``ma_config`` does not name: it has what stands beside that."""
    _, loaded = trained
    of_all = loaded.resolved("demonstrations", lambda _: {"offline": True})
    assert not is_offline(loaded) and is_offline(of_all)
    check_together(of_all, TwoKinds().specs)
    walker, others = (of_all, loaded) if alone == "walker" else (loaded, of_all)
    mixed = replace(others, behaviours=walker.behaviours)
    mixed = mixed.resolved("base_config", lambda _: {"name": "b"})
    with pytest.raises(UsageError) as error:
        train(parse_args(["./task", "--device=cpu", "--quiet"]), mixed)
    assert error.value.where.endswith("ma_config")


def test_a_run_of_several_is_resumed_exactly(trained, monkeypatch):
    """From step 60 to 100, as straight to 100."""
    folder, _ = trained
    longer = ["./task", "--device=cpu", "--quiet", "-o", "base_config.max_step=100"]
    assert resume(parse_args([*longer, "--resume"]), find_env("./task")) == 0
    flags = {"base_config.name": "b", "base_config.max_step": 100}
    train(parse_args(longer), load_config("./task", flags=flags, seed=1))
    found, straight = what_must_agree(folder), what_must_agree(folder.parent / "b")
    for one in (found, straight):  # the first was evaluated at step 60 as well, and remembers it
        columns = json.loads(str(one["metrics"]))
        one["metrics"] = {name: str(column) for name, column in columns.items() if "/eval/" not in name}
    assert found == straight
