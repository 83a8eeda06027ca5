"""One pass of what was done and what follows, against plain modules; statistics that only a step moves."""

import copy
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from algorithm.core.errors import ModelError
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.nn.layers.norm import BatchNorm
from algorithm.nn.return_scale import ReturnScale
from algorithm.nn.value_range import ValueRange
from tests.agents.oracles import PlainFlash
from tests.lib.batches import SMALL, Sac, random_batch, small_sac, weights
from tests.nn.oracles import PlainNet

BATCH = {"norm": "batch"}
INVERTED = {"norm": "batch_first", "block": "inverted"}
CROSS = {"q": BATCH, "policy": BATCH, "use_target_network": False}
HYBRID = AgentSpec(SMALL.obs, ActionSpec(branches=(2, 3), continuous=2))


@pytest.mark.parametrize(("critics", "kind"), [(1, "batch"), (2, "batch_first"), (5, "batch")])
@pytest.mark.parametrize("own_target", [False, True], ids=["none", "target"])
def test_an_update_is_a_pass_over_both_halves(critics, kind, own_target):
    norm = {"norm": kind}
    sac = small_sac(
        q=norm,
        policy=norm,
        ensemble_q_num=critics,
        ensemble_q_sample=critics,
        gamma=0.9,
        use_target_network=own_target,
    )
    if own_target:  # targets that differ
        with torch.no_grad():
            for value in sac.model.target_q.parameters():
                value.add_(0.1 * torch.randn_like(value))
    batch = random_batch(32)
    if critics == 1:  # more than any rewards allow
        sac.model.q.members[0].net[-1].bias.data.fill_(1000.0)
    plain = [PlainNet(member.net) for member in sac.model.q.members]
    sac.model.target_q.realias()
    targets = [PlainNet(member.net) for member in sac.model.target_q.members] if own_target else plain
    generator = torch.Generator().manual_seed(0)
    generator.set_state(sac._generator.get_state())
    with torch.no_grad():
        noise = torch.randn(32, 2, generator=generator)
        u, logp = sac.objective.next_action(sac.model.policy(batch.obs["obs"][:, 1], {}), noise)
    now = torch.cat([batch.obs["obs"][:, 0], batch.action[:, 0]], -1)
    then = torch.cat([batch.obs["obs"][:, 1], u], -1)
    both = [net(torch.cat([now, then])) for net in plain]
    with torch.no_grad():
        ahead = [net(torch.cat([now, then])) for net in targets] if own_target else both
    next_q = torch.stack([out[32:, 0] for out in ahead]).min(0).values.detach()
    bonus = sac.objective.entropy_bonus(logp, None)
    if not own_target:
        next_q = next_q.clamp(max=(batch.reward.max() + 0.9 * bonus.max().clamp(min=0.0)) / (1.0 - 0.9))
    value = next_q + bonus
    y = batch.reward[:, 0] + 0.9 * value.masked_fill(batch.terminated[:, 0], 0.0)
    loss = 0.5 * sum((batch.weight * (out[:32, 0] - y).square()).mean() for out in both)
    loss.backward()
    torch.testing.assert_close(sac.update(batch).metrics["loss/q"], loss.detach(), atol=1e-5, rtol=1e-5)
    for member, net in zip(sac.model.q.members, plain, strict=True):
        theirs = [p.grad for p in net.parameters() if p.requires_grad]
        ours = [p.grad for p in member.net.parameters()] if sac.model.q.backend == "loop" else None
        if ours is None:
            index = sac.model.q.members.index(member)
            names = [name.replace(".", "/") for name, _ in member.named_parameters()]
            ours = [sac.model.q.get_parameter(name).grad[index] for name in names]
        for one, two in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("critics", [1, 2, 5])
def test_an_update_of_flash_is_that_of_plain_modules(critics):
    """Gradients of critics and policy, parameters and running statistics behind it."""
    bins = {"categorical_num": 11, "categorical_range": 2.0}
    several = {"ensemble_q_num": critics, "ensemble_q_sample": critics}
    sac = small_sac(
        q=INVERTED,
        policy=INVERTED,
        value_head="categorical",
        reward_scaling=True,
        gamma=0.9,
        **bins,
        **several,
    )
    with torch.no_grad():
        for value in sac.model.target_q.parameters():  # targets that differ
            value.add_(0.1 * torch.randn_like(value))
        for name, value in sac.model.policy.named_buffers():
            if name.endswith(("mean", "var")):
                value.uniform_(0.5, 1.5)
    sac.model.target_q.realias()
    policy = copy.deepcopy(sac.model.policy)
    policy.net = PlainNet(policy.net)
    plain = PlainFlash(
        [PlainNet(member.net) for member in sac.model.q.members],
        [PlainNet(member.net) for member in sac.model.target_q.members],
        policy,
        num=11,
        limit=2.0,
        gamma=0.9,
        learning_rate=sac.config.learning_rate,
        log_alpha=sac.config.init_log_alpha,
        target_entropy=0.0,
    )
    generator = torch.Generator().set_state(sac._generator.get_state())
    batch = random_batch(32)
    loss = plain.update(batch, lambda: torch.randn(32, 2, generator=generator))
    torch.testing.assert_close(sac.update(batch).metrics["loss/q"], loss, atol=1e-6, rtol=1e-6)
    sac.model.q.realias()
    for own, other in [
        *zip(sac.model.q.members, plain.critics, strict=True),
        (sac.model.policy, plain.policy),
    ]:
        for one, two in zip(own.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad, atol=1e-6, rtol=1e-4)
            torch.testing.assert_close(one.data, two.data, atol=1e-5, rtol=1e-4)
        assert_same_statistics(own, other)


def assert_same_statistics(own: torch.nn.Module, other: torch.nn.Module) -> None:
    norms = [layer for layer in own.modules() if isinstance(layer, BatchNorm)]
    plain = [layer for layer in other.modules() if isinstance(layer, torch.nn.BatchNorm1d)]
    for one, two in zip(norms, plain, strict=True):
        torch.testing.assert_close(one.mean, two.running_mean, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(one.var, two.running_var, atol=1e-6, rtol=1e-5)


FLASH = {
    "q": INVERTED,
    "policy": INVERTED,
    "value_head": "categorical",
    "reward_scaling": True,
}
OPTIONS = [
    {
        **CROSS,
        "ensemble_q_num": 5,
        "ensemble_q_sample": 2,
        "n_step": 3,
        "use_n_step_is": False,
        "spec": HYBRID,
    },
    {"q": {"norm": "batch_first"}, "policy": {"norm": "batch_first"}, "n_step": 2},
    {"value_head": "quantile", "policy": BATCH, "weight_decay": 0.5},
    {**FLASH, "spec": HYBRID, "n_step": 2},
]


def batch_of(options: dict, seed: int = 0, size: int = 16):
    window = options.get("n_step", 1)
    exists = torch.randint(1, window + 1, (size,), generator=torch.Generator().manual_seed(seed))
    return random_batch(size, window, seed=seed, exists=exists, spec=options.get("spec", SMALL))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_bad_batch_changes_nothing_but_the_counters(options):
    sac = small_sac(**options)
    for step in range(3):
        sac.update(batch_of(options, step))
    saved = {file: {k: v.clone() for k, v in named.items()} for file, named in sac.tensors().items()}
    batch = batch_of(options, 7)
    for value in (batch.reward, *batch.obs.values()):
        value[0] = torch.nan
    sac.update(batch)
    for file, named in sac.tensors().items():
        for name, value in named.items():
            if not name.startswith(("model.target", "random.")):  # targets follow what stayed as it was
                assert torch.equal(value, saved[file][name]), name


def test_values_stay_between_those_of_the_rewards_so_far():
    scale = ReturnScale(0.5)
    held = ValueRange(0.5, scale)
    value, none = torch.tensor([[-9.0, 0.5, 9.0]]), torch.zeros(1, 3)
    exists = torch.ones(1, 3, dtype=torch.bool)
    bonus = torch.tensor([[0.25, 0.5, -0.5]])

    def bounds(reward: Sequence[float], bonus: torch.Tensor = none) -> list[float]:
        found = held(value, torch.tensor([reward]), bonus, exists).tolist()[0]
        assert found[1] == 0.5
        return found[::2]

    assert bounds([0.5, 1.0, 2.0]) == [0.0, 4.0], "0 is among the rewards"
    held.commit(torch.tensor(False))
    assert bounds([1.0, 1.0, -1.5]) == [-3.0, 2.0]
    held.commit(torch.tensor(True))
    assert bounds([1.0, 0.0, 2.0]) == [-3.0, 4.0], "of rewards so far"
    assert bounds([1.0, 0.0, 2.0], bonus) == [-3.5, 4.5]
    assert held.state_dict()["limits"].tolist() == [-1.5, 1.0]
    scale.observe(SimpleNamespace(rewards=lambda: [(0, 0, [10.0], True)]))
    exists = torch.tensor([[True, False, True]])
    assert bounds([1.0, 7.0, 1.0], torch.tensor([[0.0, 7.0, 0.0]])) == [-1.5, 2.0], "padding is nothing"
    assert scale.factor == 0.5 and bounds([0.5, 0.5, 0.5]) == [-1.5, 1.0], "in the present unit"


def statistics(sac: Sac) -> dict[str, torch.Tensor]:
    ends = ("/mean", "/var", "/steps", ".mean", ".var", ".steps", ".limits")
    return {name: value for name, value in weights(sac).items() if name.endswith(ends)}


def test_only_an_update_moves_the_statistics():
    sac = small_sac(**CROSS)
    before = statistics(sac)
    assert len(before) == 3 * (3 + 3) + 1  # three norms of the critics, three of the policy; of rewards
    batch = random_batch(16)
    sac.td_error(batch)
    sac.model.policy(torch.randn(4, 3), {})
    for name, value in statistics(sac).items():
        assert torch.equal(value, before[name]), name
    sac.update(batch)
    assert all(not torch.equal(value, before[name]) for name, value in statistics(sac).items())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"use_target_network": False}, "the critics have no batch norm"),
        ({"q": BATCH, "batch_size": 8}, "batch_size is 8"),
        ({"policy": BATCH, "batch_size": 8}, "batch_size is 8"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ModelError, match=message):
        small_sac(**options)


def test_the_policy_s_statistics_wait_for_its_turn():
    sac = small_sac(**CROSS, policy_update_per_step=2)
    before = statistics(sac)
    for turn in range(2):
        sac.update(random_batch(16, seed=turn))
        moved = {name for name, value in statistics(sac).items() if not torch.equal(value, before[name])}
        assert any(name.startswith("model.policy") for name in moved) == (turn == 1)
        assert any(name.startswith("model.q") for name in moved)


def test_without_target_networks_a_checkpoint_holds_none_and_the_online_ones_stand_for_them():
    sac = small_sac(**CROSS, rep_depth=1)
    assert sac.model.target_q is sac.model.q and sac.model.target_rep is sac.model.rep
    assert not [name for name in sac.tensors()["model"] if "target" in name]
    assert [name for name in small_sac(q=BATCH).tensors()["model"] if "target" in name]
    sac.update(random_batch(16))
