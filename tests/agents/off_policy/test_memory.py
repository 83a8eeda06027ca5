"""Agents with memory: what is computed while acting, and again in training from the replay."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithm.agents.sac.config import SacConfig
from algorithm.core import ActionSpec, AgentSpec, SequenceBatch
from algorithm.nn import AttentionRep, RecurrentRep
from algorithm.replay import ReplayBuffer, UniformSampler
from tests.lib.batches import CPU, SMALL, Sac, random_batch, sac_actor, small_sac
from tests.lib.grid import random_steps

SPEC = AgentSpec(SMALL.obs, ActionSpec((2, 3), 2))
MEMORIES = {
    "gru, 1 layer": ("RNN", {}),
    "gru, 2 layers": ("RNN", {"rnn_depth": 2}),
    "lstm": ("RNN", {"rnn": "lstm"}),
    "4 heads": ("ATTN", {"attn_n": 16, "attn_heads": 4}),
    "4 heads, 3 layers": ("ATTN", {"attn_n": 16, "attn_heads": 4, "attn_depth": 3}),
}
RNN = [name for name, (kind, _) in MEMORIES.items() if kind == "RNN"][1:]


def make_sac(memory: str, **options: object) -> Sac:
    kind, rep = MEMORIES[memory]
    lengths = {"burn_in_step": 4, "learn_step": 6}
    return small_sac(spec=SPEC, seq_encoder=kind, rep=rep, **{**lengths, **options})


class Player:
    """Episodes of two agents that end at different times: rows of a replay, and states while acting.

    lengths: of every episode of each agent
    """

    def __init__(self, sac: Sac, *, burn_in: int, learn: int, steps: int, lengths: tuple[int, int]) -> None:
        actor = sac_actor(SPEC, sac.model, SacConfig(), device=CPU, exploring=True, seed=0)
        self.states: dict[int, torch.Tensor] = {}  # row id -> state while acting
        seen = []
        hook = sac.model.policy.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
        self.replay = ReplayBuffer(
            SPEC,
            capacity=400,
            batch_size=16,
            burn_in=burn_in,
            learn=learn,
            carry_shape=sac.model.rep.stored_carry_shape,
            sampler=UniformSampler(),
        )
        ends = np.arange(1, steps + 1)[:, None] % lengths == 0
        for batch in random_steps(SPEC, actor, np.random.default_rng(0), ends):
            ids = self.replay.add_steps(batch)
            self.states |= dict(zip(ids.tolist(), seen.pop(), strict=True))
        hook.remove()

    def all_windows(self) -> SequenceBatch:
        return self.replay.windows(np.array(sorted(self.states)))

    def windows_anywhere(self, learn: int) -> SequenceBatch:
        """Of every transition one, in which it has some place among the learned."""
        ids = np.array(sorted(self.states))
        place = np.random.default_rng(1).integers(learn, size=len(ids))
        return self.replay._windows.read(ids, np.ones(len(ids), np.float32), place)


def assert_as_while_acting(player: Player, batch: SequenceBatch, state: torch.Tensor, first: int = 0) -> None:
    """The transitions from the first token on have the states [B, T, S] in which their actions were taken."""
    rows, times = torch.nonzero(batch.valid[:, first : first + state.shape[1]], as_tuple=True)
    ids = batch.ids[rows, first + times].tolist()
    assert len(ids) > 150
    expected = torch.stack([player.states[one] for one in ids])
    torch.testing.assert_close(state[rows, times], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("memory", ["4 heads"])
def test_every_learned_position_of_attention_sees_what_it_saw_while_acting(memory):
    """Episodes longer than the window, and windows that begin anywhere; one layer."""
    sac = make_sac(memory, burn_in_step=3, learn_step=5)
    player = Player(sac, burn_in=3, learn=5, steps=60, lengths=(20, 13))
    batch = player.windows_anywhere(5)
    assert_as_while_acting(player, batch, sac.encode(batch).states.learned, first=3)


@pytest.mark.parametrize("memory", RNN)
def test_a_recurrent_state_is_that_while_acting_wherever_its_window_begins(memory):
    """Also where the burn-in, and some of the learned part, would lie before the episode."""
    sac = make_sac(memory, burn_in_step=3, learn_step=5)
    player = Player(sac, burn_in=3, learn=5, steps=60, lengths=(7, 11))
    batch = player.windows_anywhere(5)
    assert not batch.obs_valid[:, 3].all() and batch.valid.gather(1, batch.anchor[:, None]).all()
    assert_as_while_acting(player, batch, sac.encode(batch).state[:, :-1])
    begins = batch.step[:, 0] == 0
    assert begins.any() and not batch.carry[begins].any() and batch.carry[~begins].flatten(1).any(1).all()


@pytest.mark.parametrize("memory", RNN)
def test_burn_in_gets_no_gradient_and_learned_inputs_do(memory):
    sac = make_sac(memory)
    batch = random_batch(3, 4 + 6, spec=SPEC)
    batch = replace(batch, carry=torch.randn(3, *sac.model.rep.carry_shape))
    obs = batch.obs["obs"].requires_grad_()
    prev_action = batch.prev_action.requires_grad_()
    states = sac.states(sac.model.normaliser(batch.obs), batch)
    states.online[:, 4:10].square().sum().backward()
    for grad in (obs.grad, prev_action.grad):
        assert not grad[:, :4].any() and not grad[:, 10:].any()
        assert grad[:, 4:10].flatten(2).any(-1).all()


@pytest.mark.parametrize("memory", RNN)
def test_recomputed_carries_stand_at_the_rows_they_were_stored_with(memory):
    """With unchanged networks they are what acting stored, so the refresh writes back what is there."""
    sac = make_sac(memory, refresh_carry=True, learning_rate=1e-12)
    player = Player(sac, burn_in=4, learn=6, steps=60, lengths=(7, 11))
    for batch in (player.all_windows(), player.windows_anywhere(6)):
        stored = torch.from_numpy(player.replay.carries(batch.ids.numpy()))
        result = sac.update(batch)
        there = batch.obs_valid
        torch.testing.assert_close(result.carry[there], stored[there], atol=1e-6, rtol=1e-5)
        player.replay.refresh_carry(result)
        again = torch.from_numpy(player.replay.carries(batch.ids.numpy()))
        torch.testing.assert_close(again, stored, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("rep", [RecurrentRep(SPEC, 8, 1), AttentionRep(SPEC, 4, 8, 1)])
def test_what_does_not_exist_has_a_state_of_zeros(rep):
    """Also behind dense layers, whose biases make something of nothing."""
    batch = random_batch(2, 5, spec=SPEC, exists=torch.tensor([2, 5]))
    state, _ = rep(batch.obs, batch.prev_action, torch.zeros(2, *rep.stored_carry_shape), batch.obs_valid)
    assert not state[~batch.obs_valid].any() and state[batch.obs_valid].any(-1).all()
