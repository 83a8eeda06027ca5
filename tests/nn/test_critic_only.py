"""Observations that only critics see: what reaches the policy, the critics, and what is refused."""

import pytest
import torch

from algorithm.agents.off_policy.model import NETWORKS
from algorithm.agents.on_policy.networks import NETWORKS as VALUES
from algorithm.core import ActionSpec, AgentSpec, ObsSpec, UsageError
from algorithm.nn.loader import load_networks

SPEC = AgentSpec(
    ObsSpec(("eye", "h", "v"), ((9, 8, 1), (2,), (3,)), ("uint8", "float32", "float32")),
    ActionSpec(continuous=2),
)
CODED = AgentSpec(ObsSpec(("v", "c"), ((3,), (2,)), ("float32",) * 2, ((), (2, 2))), ActionSpec((3,)))


def drawn(**changed: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two windows of three tokens."""
    generator = torch.Generator().manual_seed(0)
    vectors = {"h": (2, 3, 2), "v": (2, 3, 3)}
    obs = {name: torch.randn(shape, generator=generator) for name, shape in vectors.items()}
    return {"eye": torch.randint(256, (2, 3, 9, 8, 1), generator=generator), **obs, **changed}


@pytest.mark.parametrize("memory", [None, "RNN", "ATTN"])
def test_a_state_ends_with_them_and_nothing_else_of_the_policy_depends_on_them(memory):
    networks = load_networks(SPEC, None, NETWORKS, seq_encoder=memory, context=3, critic_only=("h",))
    rep, policy = networks.rep.eval(), networks.built["ModelPolicy"].eval()
    carry, valid = torch.zeros(2, *rep.stored_carry_shape), torch.ones(2, 3, dtype=torch.bool)

    def run(obs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        state, _ = rep(obs, torch.zeros(2, 3, 2), carry, valid)
        return state, policy(state, obs).continuous.mean

    (state, mean), (other, same) = run(drawn()), run(drawn(h=torch.full((2, 3, 2), 9.0)))
    assert state.shape[-1] == networks.state_size and torch.equal(state[..., -2:], drawn()["h"])
    assert torch.equal(state[..., :-2], other[..., :-2]) and torch.equal(mean, same)
    q = networks.make("ModelQ")
    assert not torch.equal(q(state, mean), q(other, mean))
    assert not torch.equal(run(drawn(v=torch.zeros(2, 3, 3)))[1], mean)


def test_a_value_and_a_second_encoder_get_them_too():
    networks = load_networks(SPEC, None, VALUES, critic_only=("h",))
    second = networks.make("ModelRep").eval()
    valid = torch.ones(2, 3, dtype=torch.bool)
    states = [
        second(drawn(h=torch.full((2, 3, 2), h)), torch.zeros(2, 3, 2), torch.zeros(2, 0), valid)[0]
        for h in (0.0, 1.0)
    ]
    value = networks.built["ModelV"]
    assert not torch.equal(*(value(state, drawn()) for state in states))


@pytest.mark.parametrize(
    ("spec", "hidden", "message"),
    [
        (SPEC, ("speed",), "no observation 'speed'.*eye, h, v"),
        (SPEC, ("eye",), "'eye' cannot be for critics only"),
        (CODED, ("c",), "'c' cannot be for critics only"),
        (SPEC, ("v", "v"), "listed twice"),
        (AgentSpec(ObsSpec(("v",), ((3,),), ("float32",)), ActionSpec((3,))), ("v",), "would see nothing"),
    ],
)
def test_what_cannot_be_hidden_is_refused(spec, hidden, message):
    with pytest.raises(UsageError, match=f"(?s){message}"):
        load_networks(spec, None, NETWORKS, critic_only=hidden)
