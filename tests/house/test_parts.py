"""Building with parts: what packages offer, how it shows itself, and the examples of docs/parts.md."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import asac
from algorithm.agents import Learner
from algorithm.agents.off_policy.records import Draws
from algorithm.config.schema import Config
from algorithm.core import ActionSpec, AgentSpec, ObsSpec
from algorithm.replay import FifoSampler, PrioritizedSampler, ReplayBuffer, Sampler
from algorithm.run.callbacks import Training
from main import main
from tests.lib.batches import random_batch, small_sac

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PACKAGES = ("asac", "algorithm.core", "algorithm.nn", "algorithm.replay", "algorithm.agents")
VECTOR = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=1))
MIXED = AgentSpec(
    ObsSpec(("way", "film"), ((2,), (4, 84, 84)), ("int64", "uint8"), ((3, 3), ()), (1, 4)),
    ActionSpec((3, 2), 1, squash="clip"),
)


def typed_imports(package: str) -> dict[str, tuple[str, str]]:
    """Return the names that type checkers see: name -> module, and its name there."""
    tree = ast.parse(Path(importlib.import_module(package).__file__ or "").read_text())
    (block, *_) = (node for node in tree.body if isinstance(node, ast.If))  # if TYPE_CHECKING
    found = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {one.asname or one.name: (node.module or "", one.name) for node in found for one in node.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_offers_what_type_checkers_see(package):
    module, typed = importlib.import_module(package), typed_imports(package)
    assert set(module.__all__) - {"__version__"} == typed.keys() and dir(module) == sorted(module.__all__)
    for name, (where, there) in typed.items():
        assert getattr(module, name) is getattr(importlib.import_module(where), there)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_the_map_names_the_files_in_which_an_update_runs():
    """Nine files hold most of the lines of a plain update, counted as they run."""
    table = (ROOT / "algorithm" / "README.md").read_text("utf-8").partition("| what it answers |")[2]
    named = re.findall(r"^\| \[`([\w/.]+)`\]", table.partition("\n\n")[0], re.M)
    sac, batch, ran = (
        small_sac(n_step=1, use_normalization=False, reward_scaling=False),
        random_batch(),
        set(),
    )

    def note(frame, event, argument):
        name = frame.f_code.co_filename.partition(f"{ROOT / 'algorithm'}/")[2]
        ran.update([(name, frame.f_lineno)] if name and event == "line" else [])
        return note if name else None

    former = sys.gettrace()
    sys.settrace(note)
    try:
        sac.update(batch)
    finally:
        sys.settrace(former)
    files = [name for name, _ in ran]
    assert sum(name in named for name in files) > 0.8 * len(files), ran
    assert (len(named), len(set(files))) == (9, 16), "as the map says"


def filled(sampler: Sampler | None = None, n: int = 30) -> ReplayBuffer:
    """Episodes of ten steps, whose observations and rewards count."""
    replay = ReplayBuffer(VECTOR, capacity=100, batch_size=8, sampler=sampler)
    for i in range(n):
        obs, ends = np.full(3, i, np.float32), {"terminated": i % 20 == 9, "truncated": i % 20 == 19}
        replay.add_transition(obs, [np.tanh(0.1 * i)], reward=i, next_obs=obs + 1, **ends)
    return replay


SHOWN = {
    "ReplayBuffer(33 of 100 rows, 30 transitions, batch_size=8, UniformSampler())": filled,
    "PrioritizedSampler(alpha=0.9, beta=0.4)": PrioritizedSampler,
    "FifoSampler()": FifoSampler,
    "Config(algorithm='TD3', sac_config=SacConfig(gamma=0.9))": (
        lambda: Config.model_validate({"algorithm": "TD3", "sac_config": {"gamma": 0.9}})
    ),
    "Family('HILL')": lambda: runpy.run_path(str(EXAMPLES / "hill.py"))["HILL"],
    "Learner(updates=0, parameters=8, cpu)": (lambda: Learner(torch.device("cpu"), 1, torch.nn.Linear(3, 2))),
    "Training('models/a', step=1,200, episodes=6)": lambda: Training(
        Path("models/a"), Config(), {}, SimpleNamespace(step=1200, episodes=6), None
    ),
}
"""Text of a thing, and the thing; those of ``asac`` are in tests/app/test_api.py."""


@pytest.mark.parametrize("text", SHOWN, ids=lambda text: text[:40])
def test_what_a_thing_says_of_itself(text):
    assert repr(SHOWN[text]()) == text


def test_transitions_of_a_loop_are_stored_as_they_were():
    """Also z, from which the replay makes the action again, and the ends."""
    replay = filled()
    batch = replay.windows(np.array([0, 9, 31]))  # the last row of each episode is none
    assert batch.reward[:, 0].tolist() == [0, 9, 29]
    assert batch.terminated[:, 0].tolist() == [False, True, True]
    assert batch.obs["obs"][:, :, 0].tolist() == [[0, 1], [9, 10], [29, 30]]
    torch.testing.assert_close(batch.action[:, 0, 0], torch.tensor([0.0, 0.9, 2.9]).tanh())
    with pytest.raises(ValueError, match="action: expected 1 numbers from -1 to 1"):
        replay.add_transition(np.zeros(3), [2.0], reward=0, next_obs=np.zeros(3))
    mixed = ReplayBuffer(MIXED, capacity=9, batch_size=1)
    obs = {"way": np.array([1, 2]), "film": np.ones((4, 84, 84))}
    mixed.add_transition(obs, [0, 1, 0, 1, 0, 0.5], reward=1, next_obs=obs)
    batch = mixed.sample()
    assert batch.action[0, 0].tolist() == [0, 1, 0, 1, 0, 0.5] and batch.obs["way"][0, 0].tolist() == [1, 2]


class Wrong(Sampler):
    def sample(self, n, rng):
        return np.full(n, self.slot), np.ones(n, np.float32)


@pytest.mark.parametrize(("slot", "n"), [(10, 8), (99, 8)])
def test_a_sampler_that_draws_what_is_no_transition(slot, n):
    """Row 10 is the last one of an episode, 99 none at all; 8 weights are wanted."""
    sampler = Wrong()
    sampler.slot = slot
    with pytest.raises(asac.UsageError, match=r"Wrong\(\) must return 8 slots of transitions"):
        filled(sampler).sample()


# The examples of docs/parts.md


@pytest.fixture
def run_example(cwd, monkeypatch):
    """Run an example as a script, for 60 steps where it trains longer; return its names."""
    monkeypatch.setattr(sys, "path", [str(cwd), *sys.path])

    def run(name, run_name="__main__", steps=60):
        text = re.sub(r"max_step=[\d_]+", f"max_step={steps}", (EXAMPLES / f"{name}.py").read_text())
        (cwd / f"{name}.py").write_text(text)
        return runpy.run_path(f"{name}.py", run_name=run_name)

    yield run
    for name in ("hill", "recent", "sac_by_hand"):
        sys.modules.pop(name, None)


def test_the_losses_by_hand_are_those_of_an_update(run_example):
    names = run_example("sac_by_hand", run_name="example")
    batch = filled().windows(np.array([0, 5, 9, 12, 20, 22, 30, 31]))  # two of them end an episode
    with torch.no_grad():  # slow critics that differ
        for parameter in names["slow"].module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    torch.manual_seed(1)
    by_hand = [loss.item() for loss in names["losses"](batch)]
    sizes, keys = {"dense_n": 256}, {"init_log_alpha": 0.0, "reward_scaling": False, "use_priority": False}
    sac = small_sac(spec=names["spec"], q=sizes, policy=sizes, **keys)
    sac.model.policy.load_state_dict(names["policy"].state_dict())
    for ours, theirs in ((sac.model.q, names["critics"]), (sac.model.target_q, names["slow"].module)):
        for member, critic in zip(ours.members, theirs, strict=True):
            member.load_state_dict(critic.state_dict())
    torch.manual_seed(1)
    noise = [torch.randn(8, 1) for _ in range(2)]
    sac.draw = lambda *_: Draws(
        next_noise=noise[0], noise=noise[1], coins=None, members=None, extensions=[{}]
    )
    # The policy's loss by hand is that of the critics before their step.
    sac.critic_optimiser.learning_rate = sac.critic_optimiser.factor = 0.0
    metrics = sac.update(batch).metrics
    found = [float(metrics[f"loss/{name}"]) for name in ("q", "policy", "alpha")]
    np.testing.assert_allclose(by_hand, found, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_sac_by_hand_learns(run_example, capsys):
    torch.manual_seed(1)
    run_example("sac_by_hand", steps=6_000)
    returns = [int(word) for word in capsys.readouterr().out.split()[1:]]
    assert np.median(returns[-5:]) > -300 > np.median(returns[:3])  # one episode may still fail


def test_a_sampler_of_ones_own_trains_and_draws_the_newest(run_example, capsys):
    names = run_example("recent")
    assert "mean return" in capsys.readouterr().out
    replay = filled(names["Recent"](rows=10))
    drawn = {int(one) for _ in range(20) for one in replay.sample().ids[:, 0]}
    assert drawn == set(range(23, 33)) - {32}, "row 32 is the last one, without an action"


def test_a_family_of_ones_own_trains_is_resumed_and_evaluated(run_example, capsys, tmp_path):
    """By Python, then by the command line, as ``hill:HILL``."""
    run_example("hill", steps=400)
    assert "mean return" in capsys.readouterr().out
    (folder,) = (tmp_path / "models").glob("*/*")
    run = asac.Run(folder)
    assert run.config.algorithm == "hill:HILL" and run.policy("latest").networks.top > 0
    words = ["CartPole-v1", "-n", folder.name, "--device=cpu", "--quiet"]
    assert main([*words, "--resume", "--max_step=500"]) == 0
    assert main([*words, "--eval=2"]) == 0
    assert run.result["steps"] == 500


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"algorithm": "nowhere:HILL"}, "the algorithm nowhere:HILL cannot be loaded"),
        ({"algorithm": "math:pi"}, "the algorithm math:pi is not a valid algorithm"),
        ({"sampler": "math:pi"}, "the sampler math:pi has no maker"),
        ({"sampler": "builtins:list"}, "the sampler builtins:list is not a valid sampler"),
        ({"sampler": {"algorithm.replay:UniformSampler": {"rows": 3}}}, "does not take {'rows': 3}"),
    ],
)
def test_a_part_that_cannot_be_used(given, what, tmp_path):
    algorithm = given.pop("algorithm", None)
    keys = {f"replay_config.{name}": value for name, value in given.items()}
    keys |= {"sac_config.use_priority": False} if keys else {}
    with pytest.raises(asac.UsageError, match=re.escape(what)) as caught:
        asac.train(
            "Pendulum-v1", algorithm=algorithm, overrides=keys, directory=tmp_path, max_step=50, quiet=True
        )
    assert caught.value.fix and caught.value.where


FAULTY = """
from dataclasses import dataclass

import hill
from algorithm.agents import Family
from algorithm.replay import UniformSampler


class Draws(UniformSampler):
    def __init__(self, rows=1):
        self.share = 1 / rows

    def sample(self, n, rng):
        return super().sample(n, rng.nobody)


class Learns(hill.HillClimber):
    def learn(self, step, watch=None, *, run_step=None):
        exit(self.updates)


def plays(inputs):
    agent = hill.HillClimber(inputs)
    agent.policy.choose = lambda obs, mask, greedy: obs["nobody"]
    return agent


@dataclass(frozen=True)
class Keys:
    spread: float = 1.0
    tries: int = 3


def keyed(inputs):
    assert KEYED.keys_of(inputs.config).spread == inputs.config.algorithm_args.get("spread", 1.0)
    return hill.HillClimber(inputs)


KEYED = Family(name="KEYED", make_agent=keyed, keys=Keys)
LEARNS = Family(name="LEARNS", make_agent=Learns)
PLAYS = Family(name="PLAYS", make_agent=plays)
"""
DRAWS = "-o 'sac_config={use_priority: false, start_step: 20, batch_size: 8}' -o replay_config.sampler="


@pytest.mark.parametrize(
    ("words", "what", "line"),
    [
        (f"{DRAWS}faulty:Draws", "the sampler faulty:Draws has raised", "super().sample(n, rng.nobody)"),
        (f"{DRAWS}'{{faulty:Draws: {{rows: 0}}}}'", "the sampler faulty:Draws cannot be made", "1 / rows"),
        ("--algorithm faulty:LEARNS", "the algorithm faulty:LEARNS has raised", "exit(self.updates)"),
        ("--algorithm faulty:PLAYS --dry_run", "the algorithm faulty:PLAYS has raised", 'obs["nobody"]'),
    ],
)
def test_what_a_part_raises_is_told_as_its_own(words, what, line, run_example, capsys, tmp_path):
    run_example("hill", run_name="example")
    (tmp_path / "faulty.py").write_text(FAULTY)
    sys.modules.pop("faulty", None)
    assert main(["CartPole-v1", "--quiet", "--device=cpu", "--max_step=60", *shlex.split(words)]) == 2
    told = capsys.readouterr().err
    assert f"error: {what}" in told and line in told and f"{tmp_path / 'faulty.py'}:" in told


@pytest.mark.parametrize(
    ("algorithm", "keys", "code", "told"),
    [
        ("faulty:KEYED", "{}", 0, "Keys(spread=1.0, tries=3)"),
        ("faulty:KEYED", "{spread: 2}", 0, "Keys(spread=2.0, tries=3)"),
        ("faulty:KEYED", "{spred: 2}", 2, "did you mean 'spread'?"),
        ("faulty:KEYED", "{tries: many}", 2, "it should be a valid integer"),
        ("SAC", "{spread: 2}", 2, "algorithm_args has no key 'spread'"),
    ],
)
def test_a_family_has_keys_of_its_own(algorithm, keys, code, told, run_example, capsys, tmp_path):
    run_example("hill", run_name="example")
    (tmp_path / "faulty.py").write_text(FAULTY)
    sys.modules.pop("faulty", None)
    words = ["CartPole-v1", "--device=cpu", "--dry_run", "--algorithm", algorithm]
    assert main([*words, "-o", f"algorithm_args={keys}"]) == code
    assert told in "".join(capsys.readouterr())
