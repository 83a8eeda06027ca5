"""Agents with memory: what is computed while acting, and again in training from the replay."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.off_policy.upkeep import staleness
from algorithm.agents.sac.config import SacConfig
from algorithm.core.data import Segment, SequenceBatch
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.encoding import RecurrentEncoding, make_encoding
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.memories import AttentionRep, RecurrentRep
from algorithm.nn.loader import load_networks
from algorithm.nn.models.defaults import ModelQ
from algorithm.nn.protocols import Rep
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from tests.batches import CPU, Sac, random_batch, weights
from tests.batches import sac_actor as new_actor

SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec((2, 3), 2))
MEMORIES = {
    "gru": ("RNN", {"rnn_n": 8}),
    "gru, 2 layers": ("RNN", {"rnn_n": 8, "rnn_depth": 2}),
    "lstm": ("RNN", {"rnn": "lstm", "rnn_n": 8}),
    "lstm, 3 layers": ("RNN", {"rnn": "lstm", "rnn_n": 8, "rnn_depth": 3}),
    "1 head": ("ATTN", {"attn_n": 8, "attn_heads": 1}),
    "4 heads": ("ATTN", {"attn_n": 16, "attn_heads": 4}),
    "4 heads, 3 layers": ("ATTN", {"attn_n": 16, "attn_heads": 4, "attn_depth": 3}),
    "1 head, 3 layers": ("ATTN", {"attn_n": 8, "attn_heads": 1, "attn_depth": 3}),
    "sinusoidal, gated": (
        "ATTN",
        {"attn_n": 8, "attn_heads": 2, "attn_positions": "sinusoidal", "attn_gated": True},
    ),
}
RNN = [name for name, (kind, _) in MEMORIES.items() if kind == "RNN"]


def make_sac(memory: str, *, spec: AgentSpec = SPEC, **options: object) -> Sac:
    kind, rep = MEMORIES[memory]
    config = SacConfig(
        **{
            "seq_encoder": kind,
            "burn_in_step": 4,
            "learn_step": 6,
            "n_step": 1,
            "clip_epsilon": -1.0,
            **options,
        }
    )
    torch.manual_seed(0)
    networks = load_networks(
        spec,
        None,
        NETWORKS,
        rep={"dense_n": 8, **rep},
        q={"dense_n": 8},
        policy={"dense_n": 8},
        seq_encoder=config.seq_encoder,
        context=config.burn_in_step + 1,
    )
    return Sac(spec, networks, config, device=CPU, seed=0)


class Player:
    """Acts for two agents whose episodes end at different times; stores rows, remembers states."""

    def __init__(
        self, sac: Sac, *, burn_in: int, learn: int, n_step: int = 1, lengths: tuple[int, int]
    ) -> None:
        config = SacConfig(clip_epsilon=-1.0)
        self.sac = sac
        self.actor = new_actor(SPEC, sac.model, config, device=CPU, exploring=True, seed=0)
        self.states: dict[int, torch.Tensor] = {}  # row id -> state while acting
        sac.model.policy.register_forward_pre_hook(self._seen)
        self.replay = ReplayBuffer(
            SPEC,
            capacity=400,
            batch_size=16,
            burn_in=burn_in,
            learn=learn,
            n_step=n_step,
            carry_shape=sac.model.rep.stored_carry_shape,
            sampler=UniformSampler(),
        )
        self._lengths = lengths

    def _seen(self, module: torch.nn.Module, inputs: tuple) -> None:
        self._state = inputs[0].clone()

    def play(self, steps: int) -> None:
        rng = np.random.default_rng(0)
        obs = rng.normal(size=(2, 3)).astype(np.float32)
        carry, prev_action = self.actor.initial_carry(2), SPEC.action.padding(2)
        at, ids = np.zeros(2, int), [-1, -1]
        stored = self.actor.stored_carry_shape
        for _ in range(steps):
            acted = self.actor.act({"obs": obs}, prev_action, carry, SPEC.action.all_allowed(2))
            after = rng.normal(size=(2, 3)).astype(np.float32)
            for i in range(2):
                ended = at[i] + 1 == self._lengths[i]
                kept = (
                    np.stack([carry[i], acted.carry[i]]) if stored != (0,) else np.zeros((2, 0), np.float32)
                )
                ids[i] = self.replay.add(
                    Segment(
                        stream=i,
                        start_step=int(at[i]),
                        obs={"obs": np.stack([obs[i], after[i]])},
                        action_mask=SPEC.action.all_allowed(2),
                        carry=kept,
                        action=acted.action[i : i + 1],
                        z=acted.z[i : i + 1],
                        behaviour_logp=acted.behaviour_logp[i : i + 1],
                        reward=np.ones(1, np.float32),
                        terminated=np.array([ended]),
                        truncated=np.array([False]),
                    )
                )[0]
                self.states[int(ids[i])] = self._state[i]
                at[i] = 0 if ended else at[i] + 1
            begun = at == 0
            obs = np.where(begun[:, None], rng.normal(size=(2, 3)).astype(np.float32), after)
            carry, prev_action = acted.carry.copy(), acted.action.copy()
            carry[begun], prev_action[begun] = self.actor.initial_carry(2)[begun], 0.0

    def all_windows(self) -> SequenceBatch:
        return self.replay.windows(np.array(sorted(self.states)))

    def windows_anywhere(self, learn: int) -> SequenceBatch:
        """Of every transition one, in which it has some place among the learned."""
        ids = np.array(sorted(self.states))
        place = np.random.default_rng(1).integers(learn, size=len(ids))
        return self.replay._windows.read(ids, np.ones(len(ids), np.float32), place)


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_state_in_training_is_the_state_while_acting(memory):
    """With all of the episode so far in the window for attention; from any row's stored carry for an RNN."""
    burn_in, learn = (3, 5) if memory in RNN else (5, 6)
    sac = make_sac(memory, burn_in_step=burn_in, learn_step=learn)
    player = Player(sac, burn_in=burn_in, learn=learn, lengths=(7, 11))
    player.play(60)
    batch = player.all_windows()
    states = sac.model.encode(sac.model.normaliser(batch.obs), batch, burn_in=burn_in, learn=learn)
    whole = ((batch.step == 0) & batch.obs_valid).any(1) | torch.tensor(memory in RNN)
    compared = 0
    for row in torch.nonzero(whole)[:, 0].tolist():
        for t, id_ in enumerate(batch.ids[row].tolist()):
            if id_ in player.states:  # a final row is never acted on
                torch.testing.assert_close(states.online[row, t], player.states[id_], atol=1e-5, rtol=1e-5)
                compared += 1
    assert compared > 100
    assert not states.online[~batch.obs_valid].any()


@pytest.mark.parametrize("memory", ["1 head", "4 heads", "sinusoidal, gated"])
def test_every_learned_position_of_attention_sees_what_it_saw_while_acting(memory):
    """Episodes longer than the window, and windows that begin anywhere; one layer."""
    sac = make_sac(memory, burn_in_step=3, learn_step=5)
    player = Player(sac, burn_in=3, learn=5, lengths=(20, 13))
    player.play(60)
    batch = player.windows_anywhere(5)
    states = sac.model.encode(sac.model.normaliser(batch.obs), batch, burn_in=3, learn=5)
    compared = 0
    for row, t in torch.nonzero(batch.valid[:, 3:]).tolist():
        expected = player.states[int(batch.ids[row, 3 + t])]
        torch.testing.assert_close(states.learned[row, t], expected, atol=1e-5, rtol=1e-5)
        compared += 1
    assert compared > 400


@pytest.mark.parametrize("memory", RNN)
def test_a_recurrent_state_is_that_while_acting_wherever_its_window_begins(memory):
    """Also where the burn-in, and some of the learned part, would lie before the episode."""
    sac = make_sac(memory, burn_in_step=3, learn_step=5)
    player = Player(sac, burn_in=3, learn=5, lengths=(7, 11))
    player.play(60)
    batch = player.windows_anywhere(5)
    states = sac.model.encode(sac.model.normaliser(batch.obs), batch, burn_in=3, learn=5)
    assert not batch.obs_valid[:, 3].all() and batch.valid.gather(1, batch.anchor[:, None]).all()
    compared = 0
    for row, t in torch.nonzero(batch.valid).tolist():
        expected = player.states[int(batch.ids[row, t])]
        torch.testing.assert_close(states.online[row, t], expected, atol=1e-5, rtol=1e-5)
        compared += 1
    assert compared > 400


@pytest.mark.parametrize("memory", ["4 heads, 3 layers", "sinusoidal, gated"])
def test_attention_acts_under_the_band_of_training(memory):
    """Episodes longer than the context: a window over the whole of them gives the states of the cache."""
    sac = make_sac(memory, burn_in_step=4, learn_step=4)
    player = Player(sac, burn_in=0, learn=22, lengths=(20, 13))
    player.play(45)
    batch = player.all_windows()
    state, _ = sac.model.rep(batch.obs, batch.prev_action, batch.carry, batch.obs_valid)
    compared = 0
    for row in torch.nonzero(batch.step[:, 0] == 0)[:, 0].tolist():
        for t, id_ in enumerate(batch.ids[row].tolist()):
            if id_ in player.states and batch.valid[row, 0] and batch.step[row, 0] == 0:
                torch.testing.assert_close(state[row, t], player.states[id_], atol=1e-5, rtol=1e-5)
                compared += 1
    assert compared > 60


@pytest.mark.parametrize("memory", RNN)
def test_the_carry_stored_at_an_episodes_first_row_is_exactly_zero(memory):
    player = Player(make_sac(memory), burn_in=0, learn=1, lengths=(4, 5))
    player.play(20)
    batch = player.all_windows()
    first = batch.step[:, 0] == 0
    assert first.sum() == 5 + 4 and not batch.carry[first].any()
    assert batch.carry[~first].flatten(1).any(1).all()


@pytest.mark.parametrize("memory", RNN)
def test_burn_in_gets_no_gradient_and_learned_inputs_do(memory):
    sac = make_sac(memory)
    batch = random_batch(3, 4 + 6, spec=SPEC)
    batch = replace(batch, carry=torch.randn(3, *sac.model.rep.carry_shape))
    obs = batch.obs["obs"].requires_grad_()
    prev_action = batch.prev_action.requires_grad_()
    states = sac.model.encode(sac.model.normaliser(batch.obs), batch, burn_in=4, learn=6)
    states.online[:, 4:10].square().sum().backward()
    for grad in (obs.grad, prev_action.grad):
        assert not grad[:, :4].any() and not grad[:, 10:].any()
        assert grad[:, 4:10].flatten(2).any(-1).all()


def test_context_of_attention_gets_a_gradient():
    sac = make_sac("4 heads")
    batch = random_batch(3, 4 + 6, spec=SPEC)
    obs = batch.obs["obs"].requires_grad_()
    states = sac.model.encode(sac.model.normaliser(batch.obs), batch, burn_in=4, learn=6)
    states.online[:, 4:10].square().sum().backward()
    assert obs.grad[:, :10].any(-1).all()


@pytest.mark.parametrize("rep", [RecurrentRep(SPEC, 8, 1), AttentionRep(SPEC, 4, 8, 1)])
def test_what_does_not_exist_has_a_state_of_zeros(rep):
    """Also behind dense layers, whose biases make something of nothing."""
    batch = random_batch(2, 5, spec=SPEC, exists=torch.tensor([2, 5]))
    state, _ = rep(batch.obs, batch.prev_action, torch.zeros(2, *rep.stored_carry_shape), batch.obs_valid)
    assert not state[~batch.obs_valid].any() and state[batch.obs_valid].any(-1).all()


class Counting(Rep):
    """Adds up what it sees; counts the tokens it was given with and without a gradient."""

    carry_shape = stored_carry_shape = (3,)

    def __init__(self) -> None:
        super().__init__(SPEC)
        self.scale = torch.nn.Parameter(torch.ones(3))
        self.with_gradient, self.without = [], []

    def forward(self, obs, prev_action, carry, valid):
        steps = valid.shape[1]
        (self.with_gradient if torch.is_grad_enabled() else self.without).append(steps)
        total = (obs["obs"] * valid.unsqueeze(-1) * self.scale).cumsum(1) + carry.unsqueeze(1)
        return total, total


@pytest.mark.parametrize(("burn_in", "learn", "n_step"), [(4, 6, 3), (0, 6, 3), (2, 1, 1)])
def test_every_token_is_encoded_once_by_each_network(burn_in, learn, n_step):
    rep = Counting()
    target = copy.deepcopy(rep)
    assert make_encoding(rep) is RecurrentEncoding
    window = burn_in + learn + n_step - 1
    batch = replace(random_batch(5, window, spec=SPEC), carry=torch.randn(5, 3))
    states = RecurrentEncoding(rep, target, batch.obs, batch, burn_in=burn_in, learn=learn)
    total = batch.obs["obs"].cumsum(1) + batch.carry.unsqueeze(1)
    torch.testing.assert_close(states.online, total)
    torch.testing.assert_close(states.carry, total)
    torch.testing.assert_close(states.target_following, total[:, burn_in + 1 :])
    torch.testing.assert_close(states.target_learned, total[:, burn_in : burn_in + learn])
    assert rep.with_gradient == [learn] and sum(rep.without) == window + 1 - learn
    assert target.without == [window + 1] and not target.with_gradient


@pytest.mark.parametrize("memory", RNN)
def test_recomputed_carries_stand_at_the_rows_they_were_stored_with(memory):
    """With unchanged networks they are what acting stored, so the refresh writes back what is there."""
    sac = make_sac(memory, refresh_carry=True, learning_rate=1e-12)
    player = Player(sac, burn_in=4, learn=6, lengths=(7, 11))
    player.play(60)
    for batch in (player.all_windows(), player.windows_anywhere(6)):
        stored = torch.from_numpy(player.replay.carries(batch.ids.numpy()))
        result = sac.update(batch)
        there = batch.obs_valid
        torch.testing.assert_close(result.carry[there], stored[there], atol=1e-6, rtol=1e-5)
        player.replay.refresh_carry(result)
        again = torch.from_numpy(player.replay.carries(batch.ids.numpy()))
        torch.testing.assert_close(again, stored, atol=1e-6, rtol=1e-5)


def test_without_refresh_no_carry_is_handed_back():
    sac = make_sac("gru")
    batch = replace(random_batch(4, 10, spec=SPEC), carry=torch.zeros(4, 1, 8))
    assert sac.update(batch).carry is None


@pytest.mark.parametrize("memory", RNN)
def test_stored_carries_grow_stale_as_the_encoder_changes(memory):
    sac = make_sac(memory)
    player = Player(sac, burn_in=4, learn=6, lengths=(15, 15))
    player.play(30)
    batch = player.all_windows()
    learned = slice(4, 10)
    stored = torch.from_numpy(player.replay.carries(batch.ids[:, learned].numpy()))
    fresh = staleness(sac, batch, stored)
    assert fresh["memory/delta_q_first"] < 1e-5 and fresh["memory/delta_q_last"] < 1e-5
    with torch.no_grad():
        for parameter in sac.model.rep.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    stale = staleness(sac, batch, stored)
    assert stale["memory/delta_q_first"] > 1e-3 and stale["memory/delta_q_last"] > 1e-3
    generator = sac.tensors()["optim"]["random.update"].clone()
    staleness(sac, batch, stored)
    assert torch.equal(sac.tensors()["optim"]["random.update"], generator), "measuring draws nothing"


def taken(sac: Sac, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Q [E, B, T] of both branches' choices, their mean."""
    values = [critic(state, action[..., 5:]) for critic in sac.model.q.members]
    return torch.stack([(q * action[..., :5]).sum(-1) / 2.0 for q in values])


def test_staleness_by_hand():
    """Q of the sums of the observations against Q of the stored sums and the observation of the row."""
    sac = make_sac("gru", burn_in_step=1, learn_step=2)
    sac.model.rep, sac.model.target_rep = Counting(), Counting()
    batch = replace(random_batch(4, 3, spec=SPEC, exists=torch.tensor([3, 3, 2, 1])), carry=torch.randn(4, 3))
    sac.model.q = Ensemble(lambda: ModelQ(SPEC, 3, dense_n=8), 2)
    stored = torch.randn(4, 2, 3)
    found = staleness(sac, batch, stored)
    total = (batch.obs["obs"] * batch.obs_valid.unsqueeze(-1)).cumsum(1) + batch.carry.unsqueeze(1)
    own = stored + batch.obs["obs"][:, 1:3] * batch.obs_valid[:, 1:3].unsqueeze(-1)
    now, then = (taken(sac, x, batch.action[:, 1:3]) for x in (total[:, 1:3], own))
    valid = batch.valid[:, 1:3]
    scale = now.abs().mean(0)[valid].mean()
    for name, index in (("first", 0), ("last", 1)):
        difference = (now - then).abs().mean(0)[:, index][valid[:, index]].mean()
        torch.testing.assert_close(found[f"memory/delta_q_{name}"], difference / scale)


def test_staleness_says_nothing_of_positions_that_no_window_has():
    sac = make_sac("gru", burn_in_step=1, learn_step=3)
    batch = replace(
        random_batch(4, 4, spec=SPEC, exists=torch.tensor([2, 3, 1, 0])), carry=torch.randn(4, 1, 8)
    )
    assert set(staleness(sac, batch, torch.randn(4, 3, 1, 8))) == {"memory/delta_q_first"}
    nothing = replace(batch, valid=torch.zeros_like(batch.valid))
    assert staleness(sac, nothing, torch.randn(4, 3, 1, 8)) == {}


EVERYTHING = AgentSpec(
    ObsSpec(
        ("image", "vector", "choice"),
        ((12, 12, 1), (3,), ()),
        ("uint8", "float32", "int64"),
        ((), (), (4,)),
    ),
    ActionSpec((2, 3), 2),
)
KINDS = {
    "continuous": AgentSpec(SPEC.obs, ActionSpec((), 2)),
    "discrete": AgentSpec(SPEC.obs, ActionSpec((3,))),
    "everything": EVERYTHING,
}
OPTIONS = [
    {"n_step": 3},
    {"n_step": 3, "use_n_step_is": False},
    {"use_normalization": True},
    {"clip_epsilon": 0.2},
    {"discrete_dqn_like": True, "n_step": 2},
]


def window_batch(sac: Sac, spec: AgentSpec, window: int, *, seed: int = 0) -> SequenceBatch:
    """Windows that begin up to six tokens late, behind the burn-in, and end up to three transitions early."""
    batch = random_batch(8, window, spec=spec, seed=seed)
    g = torch.Generator().manual_seed(seed)
    first = torch.randint(0, 7, (8, 1), generator=g)
    missing = torch.randint(0, 4, (8, 1), generator=g)
    time = torch.arange(window + 1)
    obs_valid = (time >= first) & (time <= window - missing)
    carry = torch.randn(8, *sac.model.rep.stored_carry_shape, generator=g)
    return replace(batch, obs_valid=obs_valid, valid=obs_valid[:, :-1] & obs_valid[:, 1:], carry=carry)


@pytest.mark.parametrize("memory", ["gru", "lstm", "4 heads", "sinusoidal, gated"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_memory_works_with_every_kind_and_option(memory, kind, options):
    spec = KINDS[kind]
    sac = make_sac(memory, spec=spec, **options)
    before = weights(sac)
    batch = window_batch(sac, spec, 4 + 6 + options.get("n_step", 1) - 1)
    for _ in range(2):
        result = sac.update(batch)
        assert result.priority.isfinite().all() and (result.priority > 0).all()
        assert all(value.isfinite().all() for value in result.metrics.values())
    moved = {name for name, value in weights(sac).items() if not torch.equal(value, before[name])}
    learned = {
        name for name in before if name.startswith(("model.rep.memory", "model.q", "model.rep.features"))
    }
    assert learned and learned <= moved


@pytest.mark.parametrize("memory", ["gru", "lstm, 3 layers", "4 heads, 3 layers", "sinusoidal, gated"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_content_of_padding_changes_no_weight_and_no_priority(memory, kind):
    spec, results = KINDS[kind], []
    for fill in (0, 1):
        sac = make_sac(memory, spec=spec, n_step=3)
        batch = window_batch(sac, spec, 4 + 6 + 2)
        obs = {name: value.clone() for name, value in batch.obs.items()}
        prev_action = batch.prev_action.clone()
        for value in (*obs.values(), prev_action):
            value[~batch.obs_valid] = fill
        result = sac.update(replace(batch, obs=obs, prev_action=prev_action))
        results.append({"priority": result.priority, **weights(sac)})
    for name, value in results[0].items():
        assert torch.equal(value, results[1][name]), name
