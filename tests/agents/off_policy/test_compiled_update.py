"""Compiled updates are the updates. But for the slow tests, no code is generated."""

import copy
import math
import random

import pytest
import torch
from torch import nn

from algorithm.agents.off_policy.compiled_update import reason_against
from algorithm.agents.sac.config import SacConfig
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.extensions.base import Extension
from algorithm.keys.signals import GailSignal, RewardSignals, RndSignal
from algorithm.nn.layers.norm import WARM_UP
from algorithm.nn.loader import Networks
from algorithm.nn.models import defaults
from main import main
from tests.agents.forwards import FORWARDS, SIZE, Plain
from tests.extensions.test_signals import Shown
from tests.lib.batches import CPU, SMALL, Sac, random_batch, small_sac, weights

BATCH = {"norm": "batch"}
HYBRID = AgentSpec(SMALL.obs, ActionSpec(branches=(2, 3), continuous=2))
DISCRETE = AgentSpec(SMALL.obs, ActionSpec(branches=(4,)))
CROSS = {"q": BATCH, "policy": BATCH, "use_target_network": False, "policy_update_per_step": 3}
INVERTED = {"norm": "batch_first", "block": "inverted"}
FLASH = {
    "q": INVERTED,
    "policy": INVERTED,
    "value_head": "categorical",
    "categorical_num": 11,
    "reward_scaling": True,
    "policy_update_per_step": 2,
}
RND, GAIL = RndSignal(strength=0.5), GailSignal(strength=1.0, dense_n=8)
OPTIONS = {
    "cross": CROSS,
    "hybrid": {"spec": HYBRID, "n_step": 3, "q": BATCH, "policy": {"log_std": "tanh"}},
    "sampled": {"n_step": 3, "use_n_step_is": "sampled", "q": BATCH, "ensemble_q_reduce": "mean"},
    "greedy": {"spec": DISCRETE, "discrete_dqn_like": True, "discrete_soft_target": False},
    "quantiles": {"value_head": "quantile", "quantile_num": 5, "spec": HYBRID, "update_target_per_step": 2},
    "histograms": {"value_head": "categorical", "categorical_num": 11, "n_step": 3, "use_n_step_is": False},
    "flash": FLASH,
    "clipped": {"clip_epsilon": 0.2, "max_grad_norm": 0.5, "weight_decay": 0.01, "use_normalization": True},
    "many": {"ensemble_q_num": 5, "ensemble_q_sample": 2, "q": {"norm": "layer"}},
    "residual": {"q": {"block": "residual"}, "rep_depth": 1},
    "two of three": {"ensemble_q_num": 3, "ensemble_q_sample": 2, "weight_decay": 0.1},
    "rewards": {"curiosity": "FORWARD", "signals": RewardSignals(rnd=RND), "n_step": 2, "rep_depth": 1},
    "imitation": {"signals": RewardSignals(gail=GAIL), "demonstrations": Shown(), "rep_depth": 1},
    "horizons": {
        "signals": RewardSignals(
            updates=2,
            rnd=RND.model_copy(update={"gamma": 0.5, "ends": False}),
            gail=GAIL.model_copy(update={"gamma": 0.9}),
        ),
        "demonstrations": Shown(),
        "n_step": 3,
        "rep_depth": 1,
        "q": BATCH,
    },
    "atc": {"siamese": "ATC", "siamese_use_q": True, "curiosity": "INVERSE", "n_step": 2, "rep_depth": 1},
    "byol": {"siamese": "BYOL", "siamese_use_adaptive": True, "use_prediction": True, "rep_depth": 1},
}


QUICK = ("byol",)
"""Traced in every run of the suite, the others at night: tracing takes half a minute."""


@pytest.fixture
def pure(monkeypatch):
    """The function that is compiled, as it is."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


@pytest.fixture
def traced(monkeypatch):
    """The compiler's graph of it, operation by operation."""
    monkeypatch.setattr(torch._inductor, "compile", lambda module, inputs, options: module.forward)


def messages(sac: Sac) -> list[str]:
    """Return the list that will get all that the compiling of updates says."""
    told: list[str] = []
    sac.compiled.on_message = told.append
    return told


def compare(options, steps=7):
    """Train with and without; weights, results, moments and random numbers are alike."""
    plain, other = small_sac(**options), small_sac(**options, compiled=True)
    for sac in (plain, other):  # batch norms begin to correct themselves in the middle
        for name, buffer in sac.model.named_buffers():
            if name.endswith("steps"):
                buffer.fill_(WARM_UP - 3)
    said = messages(other)
    window, spec = options.get("n_step", 1), options.get("spec", SMALL)
    for step in range(steps):
        exists = torch.randint(1, window + 1, (16,), generator=torch.Generator().manual_seed(step))
        batch = random_batch(16, window, seed=step, exists=exists, spec=spec)
        if step == 2:
            batch.reward[0] = math.nan  # the critics' step is skipped
        for sac in (plain, other):  # between two updates the scale of rewards is another one
            sac.return_scale._count([float(step)])
            sac.return_scale._set_factor()
            sac.scale_learning_rate(1.0 - step / 20)
        expected, found = plain.update(batch), other.update(batch)
        assert torch.allclose(expected.priority, found.priority, atol=1e-4, equal_nan=True)
        assert expected.metrics.keys() == found.metrics.keys()
        for name, value in expected.metrics.items():
            assert value.shape == found.metrics[name].shape, name
            other_value = found.metrics[name].float()
            assert torch.allclose(value.float(), other_value, rtol=1e-3, atol=1e-3, equal_nan=True), name
    assert said and all(line.startswith("compiling") for line in said)
    for name, value in weights(plain).items():
        assert torch.allclose(value.float(), weights(other)[name].float(), atol=2e-4), name
    states = [sac.tensors()["optim"]["random.update"] for sac in (plain, other)]
    assert torch.equal(*states) and plain.skipped == other.skipped > 0
    other.scale_learning_rate(0.0)  # each step reads the rate of now
    before = weights(other)
    other.update(random_batch(16, window, seed=step, exists=exists, spec=spec))
    for name in other.trained():  # rows that are brought to length one are rounded
        assert torch.allclose(weights(other)[name], before[name], rtol=0, atol=1e-6), name


@pytest.mark.parametrize("name", OPTIONS)
def test_a_pure_update_is_the_update(pure, name):
    compare(OPTIONS[name])


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in OPTIONS]
)
def test_a_traced_update_is_the_update(traced, name):
    compare(OPTIONS[name], steps=3)


@pytest.mark.slow
@pytest.mark.timeout(900)  # three graphs of the largest, on a machine that does other things
@pytest.mark.parametrize("name", OPTIONS)
def test_a_compiled_update_is_the_update(name):
    compare(OPTIONS[name])


def test_the_first_updates_are_eager_however_often_a_run_is_resumed(pure):
    def learner():
        return small_sac(compiled=True, eager_first=3)

    straight, before, after, eager = learner(), learner(), learner(), small_sac()
    said = messages(straight)
    for step in range(5):
        batch = random_batch(16, 1, seed=step)
        for sac in (straight, eager):
            sac.update(batch)
        (before if step < 2 else after).update(batch)
        if step == 1:
            after.load_tensors(before.tensors(), before.updates)
        assert bool(said) == (step >= 3)
        same = all(torch.equal(value, weights(eager)[name]) for name, value in weights(straight).items())
        assert same or step >= 3
    for name, value in weights(straight).items():
        assert torch.equal(value, weights(after)[name]), name


class Counts(Extension):
    """An extension that looks at a number."""

    def __init__(self):
        super().__init__()
        self.own.append(nn.Linear(3, 1))

    def own_losses(self, ctx):
        error = self.own[0](ctx.state).square().mean()
        return {"error": error * (2.0 if error.item() > 0.1 else 1.0)}


def test_an_extension_that_cannot_be_compiled_is_told(traced):
    torch.manual_seed(0)
    extension = Counts()
    sacs = [
        small_sac(extensions=(copy.deepcopy(extension),), compiled=compiled) for compiled in (False, True)
    ]
    said = messages(sacs[1])
    for step in range(2):
        update_alike(sacs, random_batch(8, 1, seed=step), step)
    assert "cannot be compiled" in said[-1] and "in own_losses" in said[-1] and len(said) == 2


REFUSED = {
    "branch": "Data-dependent branching",
    "random": "marked as skipped",
    "attribute": "Python values that change",
    "gru": "torch's own nn.GRU",
    "reassigned buffer": "forward replaces scale",
}
"""Encoders whose updates are not compiled, and why."""


def sac_with(make_rep, *, compiled):
    """A learner with an encoder of ``tests/agents/forwards.py``."""
    torch.manual_seed(0)
    rep = make_rep(SMALL)

    def make(network, *_):
        return getattr(defaults, network)(SMALL, SIZE, dense_n=8)

    networks = Networks(rep, SIZE, {"ModelPolicy": make("ModelPolicy")}, make, {})
    return Sac(SMALL, networks, SacConfig(), device=CPU, seed=0, compiled=compiled)


def update_alike(sacs, batch, step):
    """Take an update of both; what they find and learn is the same."""
    results = []
    for sac in sacs:
        random.seed(step)
        torch.manual_seed(step)
        results.append(sac.update(batch).priority)
    assert torch.allclose(*results, rtol=1e-3, atol=1e-4), step
    learned, other = map(weights, sacs)
    for tensor, value in learned.items():
        assert torch.allclose(value.float(), other[tensor].float(), atol=2e-4), (step, tensor)


@pytest.mark.parametrize(
    "name", [name if name == "branch" else pytest.param(name, marks=pytest.mark.slow) for name in FORWARDS]
)
def test_what_an_encoder_does_outside_of_torch_is_followed_or_refused(traced, name):
    sacs = [sac_with(FORWARDS[name], compiled=compiled) for compiled in (False, True)]
    said = messages(sacs[1])
    for step in range(6):
        update_alike(sacs, random_batch(16, 3, seed=step), step)
    assert [name in REFUSED] == [any("cannot be compiled" in line for line in said)]
    assert REFUSED.get(name, "") in said[-1]


class Changing(Plain):
    """An encoder of which a callback may change everything."""

    def __init__(self, spec):
        super().__init__(spec)
        self.drop, self.table = nn.Dropout(0.5), nn.Linear(SIZE, SIZE)
        self.register_buffer("turned", torch.rand(SIZE, SIZE).t())

    def body(self, x):
        return self.table(self.drop(x) @ self.turned).tanh()


CHANGES = {
    "table.weight has a hook": lambda rep: rep.table.weight.register_hook(lambda gradient: 0.0 * gradient),
    "table.weight is learned no longer": lambda rep: rep.table.requires_grad_(False),
    "table.weight lies elsewhere": lambda rep: setattr(rep.table.weight, "data", torch.eye(SIZE)),
    "turned was replaced": lambda rep: setattr(rep, "turned", torch.eye(SIZE)),
    "table was replaced": lambda rep: setattr(rep, "table", copy.deepcopy(rep.table)),
}
"""Changes of an encoder by a callback between two updates, by their messages."""


@pytest.mark.parametrize("reason", CHANGES)
def test_a_change_behind_the_compilers_back_ends_compiling(pure, reason):
    sacs = [sac_with(Changing, compiled=compiled) for compiled in (False, True)]
    said = messages(sacs[1])
    update_alike(sacs, random_batch(16, 3), 0)
    for sac in sacs:
        CHANGES[reason](sac.model.rep)
    for step in (1, 2):
        update_alike(sacs, random_batch(16, 3, seed=step), step)
    assert said[-1].endswith(reason) and len(said) == 2


def test_a_batch_of_another_size_is_learned_from_in_training_mode(pure):
    sacs = [sac_with(Changing, compiled=compiled) for compiled in (False, True)]
    for step, rows in enumerate((16, 8)):
        update_alike(sacs, random_batch(rows, 3, seed=step), step)
        assert sacs[1].compiled.graphs


@pytest.mark.parametrize(
    ("keys", "max_step", "images", "compiler", "reason"),
    [
        ({"compile": "on"}, 100, True, True, None),
        ({"compile": True, "learning_rate_schedule": "linear"}, 100, False, True, None),
        ({"compile": False}, 1e9, False, True, "it is off"),
        ({"compile": "auto"}, -1, False, True, None),
        ({"compile": "auto"}, 1000, False, True, "1,000 updates are too few for it"),
        ({"compile": "auto", "replay_ratio": 0.001}, 1e6, False, True, "1,000 updates are too few for it"),
        ({"compile": "auto"}, -1, True, True, "it does not make convolutions faster"),
        ({"compile": "on"}, 1, False, False, "there is no C++ compiler (apt install g++)"),
    ],
)
def test_why_not(monkeypatch, keys, max_step, images, compiler, reason):
    found = "/usr/bin/g++" if compiler else None
    monkeypatch.setattr("algorithm.agents.off_policy.compiled_update.shutil.which", lambda _: found)
    assert reason_against(SacConfig(**keys), CPU, max_step=max_step, images=images) == reason


def test_a_short_run_is_never_compiled_and_a_long_one_says_that_it_is(cwd, monkeypatch, capsys):
    short = ["toy/identity", "-c", "discrete", "--seed=1", "--device=cpu", "-n", "short"]
    assert main([*short, "--max_step=40"]) == 0
    assert "compile: 'off'" in (cwd / "models/toy/identity/short/config.yaml").read_text()
    assert "sac_config.compile" not in capsys.readouterr().out, "nobody set it"
    long = ["toy/identity", "-c", "discrete", "--seed=1", "--device=cpu", "--max_step=30000"]
    with monkeypatch.context() as patch:
        patch.setattr("algorithm.agents.off_policy.compiled_update.shutil.which", lambda _: None)
        assert main([*long, "-o", "base_config.max_iter=1"]) == 0
    assert "not compiled: there is no C++ compiler" in capsys.readouterr().out
    assert main([*long, "--dry_run"]) == 0
    found = capsys.readouterr().out
    assert "uncompiled; faster when compiled" in found and "compiling" not in found


def test_what_cannot_be_compiled_goes_on_as_it_is(monkeypatch):
    def fails(function, **_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", fails)
    plain, other = small_sac(), small_sac(compiled=True)
    said = messages(other)
    for step in range(3):
        batch = random_batch(8, 1, seed=step)
        plain.update(batch)
        other.update(batch)
    assert said[-1] == "the update cannot be compiled, training continues without that: no compiler"
    assert len(said) == 2
    for name, value in weights(plain).items():
        assert torch.equal(value, weights(other)[name]), name
