"""Small agents of every family, action, memory and option, and random episodes for them to learn from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from algorithm.agents.base import Agent
from algorithm.agents.on_policy.acer.config import AcerConfig
from algorithm.agents.on_policy.family_config import A2cConfig, AcktrConfig, PpoConfig
from algorithm.agents.registry import family
from algorithm.agents.roles import AgentInputs, Policy
from algorithm.agents.sac.config import SacConfig
from algorithm.config.schema import BaseConfig, Config, ReplayConfig
from algorithm.core.data import ActorOutput, DemoEpisode, Demonstrations, StepBatch
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.keys.demonstrations import DemoConfig
from algorithm.keys.signals import (
    BehavioralCloning,
    CuriositySignal,
    GailSignal,
    NnConfig,
    RewardSignals,
    RndSignal,
)
from algorithm.replay.budget import MemoryBudget
from algorithm.replay.relabel import GoalTask, Hindsight
from algorithm.run.experience.rows import recorded
from tests.lib.batches import CPU

N = 4
"""Agents that act side by side."""

FAMILIES = {name: name for name in ("SAC", "TD3", "PPO", "A2C", "ACKTR", "ACER")}
ACTIONS = {
    "continuous": (ActionSpec(continuous=2), {}),
    "discrete": (ActionSpec((3,)), {}),
    "branches": (ActionSpec((2, 3)), {"discrete_soft_target": True}),
    "hybrid": (ActionSpec((2, 3), 2), {}),
    "greedy": (ActionSpec((3,), 1), {"discrete_dqn_like": True}),
}
MEMORIES = {
    "none": ({}, {}),
    "GRU": ({"seq_encoder": "RNN", "burn_in_step": 2, "learn_step": 3}, {"rnn_n": 8}),
    "attention": (
        {"seq_encoder": "ATTN", "burn_in_step": 1, "learn_step": 3},
        {"attn_n": 8, "attn_heads": 2},
    ),
}
OBSERVATIONS = {
    "vector": ObsSpec(("v",), ((3,),), ("float32",)),
    "mixed": ObsSpec(
        ("v", "i", "c", "s"),
        ((3,), (9, 8, 1), (2,), ()),
        ("float32", "uint8", "int64", "float32"),
        ((), (), (2, 3), ()),
    ),
    "for critics": ObsSpec(("h", "v"), ((2,), (3,)), ("float32",) * 2),
    "goals": ObsSpec(  # in hindsight, where windows are sampled
        ("achieved_goal", "desired_goal", "observation"), ((2,), (2,), (3,)), ("float32",) * 3
    ),
}
HEADS = {
    "scalar": {},
    "quantile": {"value_head": "quantile", "quantile_num": 5},
    "categorical": {"value_head": "categorical", "categorical_num": 7},
}
NORMS = {
    "none": ({}, {}),
    "layer": ({"norm": "layer"}, {}),
    "residual": ({"block": "residual"}, {"weight_decay": 0.01}),
    "batch": ({"norm": "batch"}, {}),
    "batch_first": ({"norm": "batch_first"}, {}),
    "inverted": ({"norm": "batch_first", "block": "inverted"}, {}),
}
TARGETS = {"slow": {}, "none": {"use_target_network": False}}
CRITICS = {
    "two": {},
    "one": {"ensemble_q_num": 1, "ensemble_q_sample": 1},
    "subset": {"ensemble_q_num": 5, "ensemble_q_sample": 2, "ensemble_q_reduce": "mean"},
}
REPLAYS = {
    "v-trace": {},
    "sampled": {"use_n_step_is": "sampled"},
    "own priorities": {"use_add_with_td": True},
    "one step": {"n_step": 1, "use_priority": False, "policy_update_per_step": 2},
    "fresh": {"n_step": 4, "use_n_step_is": False, "use_replay_buffer": False, "use_priority": False},
    "raw": {"use_normalization": False, "action_noise": (0.1, 0.3)},
}
EXPLORATION = {
    "fresh": ({}, {}),
    "falling": ({"learning_rate_schedule": "cosine"}, {"log_std": "tanh"}),
}
ATC = {"siamese": "ATC", "siamese_use_q": True, "use_prediction": True, "use_extra_data": False}
BYOL = {"siamese": "BYOL", "siamese_use_adaptive": True, "use_prediction": True}
NOVELTY = {"use_rnd": True, "rnd_n_sample": 3}
BONUS = RewardSignals(rnd=RndSignal(strength=0.5))
GAIL = RewardSignals(gail=GailSignal(strength=1.0, dense_n=8))
TWICE = RewardSignals(updates=2, gail=GailSignal(strength=1.0, dense_n=8))
EXTENSIONS = {
    "none": ({}, RewardSignals()),
    "ATC": (ATC, RewardSignals()),
    "forward, RND": ({"curiosity": "FORWARD"}, BONUS),
    "inverse, choice": ({"curiosity": "INVERSE", **NOVELTY}, RewardSignals()),
    "GAIL": ({}, GAIL),
    "all": ({**BYOL, **NOVELTY, "curiosity": "FORWARD"}, TWICE),
}
HORIZONS = {
    "one": RewardSignals(),
    "two": RewardSignals(
        curiosity=CuriositySignal(gamma=0.5, ends=False),
        rnd=RndSignal(gamma=0.5, ends=False),
        gail=GailSignal(gamma=0.9),
    ),
}
"""Horizons of the signals that an extension has; of "all" they are three."""
CLONED = {"strength": 0.5, "steps": 100}
DEMONSTRATED = {
    "none": ({}, {}),
    "cloned": ({}, CLONED),
    "in batches": ({"share": 0.5}, CLONED),
    "offline": ({"offline": True}, {}),
}
FACTORS = {
    "family": FAMILIES,
    "action": ACTIONS,
    "memory": MEMORIES,
    "obs": OBSERVATIONS,
    "head": HEADS,
    "norm": NORMS,
    "targets": TARGETS,
    "critics": CRITICS,
    "replay": REPLAYS,
    "exploration": EXPLORATION,
    "extension": EXTENSIONS,
    "horizon": HORIZONS,
    "demonstrated": DEMONSTRATED,
}
OF_CRITICS = ("head", "norm", "targets", "critics", "replay", "exploration")
"""Factors that mean nothing to families without SAC's critics."""

WITHOUT = {"PPO": ("greedy",), "A2C": ("greedy",), "ACKTR": ("greedy",), "ACER": ("greedy", "hybrid")}
"""Families without SAC's critics -> kinds of action that they refuse."""

Setting = tuple[str, str]  # factor and its value
Row = dict[str, str]


def excluded(one: Setting, other: Setting) -> bool:
    """Return whether two settings cannot be together."""
    row = dict([one, other])
    if row.get("family") == "ACKTR" and row.get("memory", "none") != "none":
        return True
    if row.get("family") in WITHOUT:
        plain = all(name not in row or row[name] == next(iter(FACTORS[name])) for name in OF_CRITICS)
        serves = row.get("extension") in (None, "none", "forward, RND", "GAIL")
        apart = row.get("horizon") == "two" and row["family"] == "ACER"
        learns = ("none", "cloned") if row["family"] != "ACER" else ("none",)
        serves = serves and row.get("demonstrated", "none") in learns
        return not plain or not serves or apart or row.get("action") in WITHOUT[row["family"]]
    apart = row.get("horizon") == "two" and row.get("extension") in ("none", "ATC")
    if apart or (row.get("demonstrated", "none") != "none" and _not_demonstrated(row)):
        return True
    if row.get("family") == "TD3":
        return row.get("action", "continuous") != "continuous"
    if row.get("targets") == "none":  # but a batch norm nothing makes target networks dispensable
        siamese = row.get("extension") in ("ATC", "all")
        return siamese or row.get("norm", "batch") not in ("batch", "batch_first", "inverted")
    return False


def _not_demonstrated(row: Row) -> bool:
    greedy = row.get("action") == "greedy"
    fresh = row["demonstrated"] != "cloned" and row.get("replay") == "fresh"
    judged = row["demonstrated"] == "offline" and row.get("extension") in ("GAIL", "all")
    return greedy or fresh or judged


def covering_rows(seed: int) -> list[Row]:
    """Rows in which every two settings that can be together are so, nearly as few as possible."""
    rng = random.Random(seed)
    settings = [(factor, value) for factor, values in FACTORS.items() for value in values]
    missing = {
        frozenset(pair)
        for pair in combinations(settings, 2)
        if pair[0][0] != pair[1][0] and not excluded(*pair)
    }
    rows = []
    while missing:
        first = min(missing, key=sorted)
        row = max((_row_with(first, missing, rng) for _ in range(20)), key=lambda one: len(one & missing))
        missing -= row
        rows.append(dict(frozenset().union(*row)))
    return [{factor: row[factor] for factor in FACTORS} for row in rows]


def _row_with(pair: frozenset[Setting], missing: set[frozenset[Setting]], rng: random.Random):
    """Return the pairs of a row that has this one, and of others many that are missing."""
    chosen = list(pair)
    for factor in rng.sample(list(FACTORS), len(FACTORS)):
        if factor not in dict(chosen):
            possible = [
                (factor, value)
                for value in FACTORS[factor]
                if not any(excluded((factor, value), one) for one in chosen)
            ]
            rng.shuffle(possible)
            chosen.append(max(possible, key=lambda one: sum({one, c} in missing for c in chosen)))
    return {frozenset(two) for two in combinations(chosen, 2)}


ROWS = covering_rows(0)


class Near(GoalTask):
    """Reaches a goal at a distance of 1; that ends the task."""

    def rewards(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return self.terminated(achieved, desired).astype(np.float32) - 1

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.linalg.norm(achieved - desired, axis=-1) < 1


def make_agent(row: Row, seed: int) -> Agent:
    """Return an agent of these settings."""
    chosen = {factor: FACTORS[factor][value] for factor, value in row.items()}
    action, of_action = chosen["action"]
    extensions, signals = chosen["extension"]
    net, of_norm = chosen["norm"]
    of_memory, rep = chosen["memory"]
    if row["family"] == "ACKTR":
        rep = {**rep, "bounded": False}  # without layer norm
    of_acting, head = chosen.get("exploration", EXPLORATION["fresh"])
    options = {**of_action, **of_memory, **extensions, **of_norm, **of_acting}
    options |= {"critic_observations": ("h",)} if row["obs"] == "for critics" else {}
    for factor in ("head", "targets", "critics", "replay"):
        options |= chosen[factor]
    shown, cloning = chosen["demonstrated"]
    sizes = {"dense_n": 8, "dense_depth": 1}
    policy = {**sizes, **net, **head}
    on_policy = {"rollout_step": 4, "sequence_step": 2}
    spec = AgentSpec(chosen["obs"], action)
    config = Config(
        algorithm=row["family"],
        base_config=BaseConfig(max_step=1000, n_envs=N),
        replay_config=ReplayConfig(capacity=200),
        sac_config=SacConfig(**{"start_step": 0, "batch_size": 16, "replay_ratio": 0.125, **options}),
        nn_config=NnConfig(rep={**sizes, **rep}, q={**sizes, **net}, policy=policy, v=sizes),
        reward_signals=with_horizons(signals, chosen.get("horizon", HORIZONS["one"])),
        demonstrations=DemoConfig(**shown),
        behavioral_cloning=BehavioralCloning(**cloning),
        ppo_config=PpoConfig(num_epoch=1, num_minibatch=2, **on_policy),
        a2c_config=A2cConfig(shared=row["memory"] != "none", use_tf_rms=False, **on_policy),
        acktr_config=AcktrConfig(shared=row["obs"] == "mixed", inverse_every=2, **on_policy),
        acer_config=AcerConfig(rollout_step=4, capacity=200, start_step=8),
    )
    sampled = config.sac_config.use_replay_buffer and not config.demonstrations.offline
    inputs = AgentInputs(
        spec,
        config,
        nn_file=None,
        behaviour="x",
        seed=seed,
        device=CPU,
        memory=MemoryBudget(free=10**9),
        demonstrations=demonstrations(spec) if signals.gail.strength or shown or cloning else None,
        relabel=Hindsight(Near(), ratio=0.8) if sampled and row["obs"] == "goals" else None,
    )
    return family(config).make_agent(inputs)


def with_horizons(signals: RewardSignals, horizons: RewardSignals) -> RewardSignals:
    """Return the signals with other horizons."""
    each = {name: getattr(horizons, name) for name in ("curiosity", "rnd", "gail")}
    return signals.model_copy(
        update={
            name: getattr(signals, name).model_copy(update={"gamma": one.gamma, "ends": one.ends})
            for name, one in each.items()
        }
    )


def demonstrations(spec: AgentSpec) -> Demonstrations:
    """Return two episodes of eight random steps."""
    rng = np.random.default_rng(5)
    episodes = [
        DemoEpisode(
            obs=random_obs(spec.obs, rng, 9),
            action_mask=spec.action.all_allowed(9),
            action=action,
            reward=np.ones(8, np.float32),
            terminated=terminated,
            z=z,
            behaviour_logp=logp,
        )
        for terminated in (True, False)
        for action, z, logp in [spec.action.random(rng, spec.action.all_allowed(8))]
    ]
    return Demonstrations(episodes=episodes, digests={"a": "1"})


def random_obs(obs: ObsSpec, rng: np.random.Generator, *lead: int) -> dict[str, np.ndarray]:
    """Return normal numbers, pixels and choices, [*lead, ...]."""
    found = {}
    for (name, shape, dtype), categories in zip(obs.items(), obs.categories, strict=True):
        if categories:
            value = rng.integers(0, np.reshape(categories, shape), (*lead, *shape))
        elif dtype == "uint8":
            value = rng.integers(0, 256, (*lead, *shape))
        else:
            value = rng.normal(size=(*lead, *shape))
        found[name] = value.astype(dtype)
    return found


def act(agent: Agent, rng: np.random.Generator) -> ActorOutput:
    """Return actions at the start of an episode."""
    action, policy = agent.spec.action, agent.policy
    obs = random_obs(agent.spec.obs, rng, N)
    return policy.act(obs, action.padding(N), policy.initial_carry(N), action.all_allowed(N))


def play(agent: Agent, rng: np.random.Generator, calls: int) -> None:
    """Act and learn in random episodes, which all end with the last step."""
    ends = rng.random((calls, N)) < 0.2
    ends[-1] = True
    for number, steps in enumerate(random_steps(agent.spec, agent.policy, rng, ends)):
        agent.add_steps(steps)
        agent.learn(N * (number + 1))


def random_steps(
    spec: AgentSpec, policy: Policy, rng: np.random.Generator, ends: np.ndarray
) -> Iterator[StepBatch]:
    """Yield steps of n agents that act in random episodes; these end where ``ends`` [steps, n] says.

    Every other end is a failure. The first choice is forbidden at times.
    """
    n, action = ends.shape[1], spec.action
    obs, mask, start = random_obs(spec.obs, rng, n), action.all_allowed(n), np.zeros(n, np.int64)
    carry, prev_action = policy.initial_carry(n), action.padding(n)

    for ended in ends:
        out = policy.act(obs, prev_action, carry, mask)
        after, next_mask = random_obs(spec.obs, rng, n), action.all_allowed(n)
        next_mask[:, :1] &= rng.random((n, 1)) < 0.7
        failed = ended & (rng.random(n) < 0.5)
        yield StepBatch(
            streams=np.arange(n),
            start_steps=start,
            obs=obs,
            action_mask=mask,
            carry=recorded(carry, policy.stored_carry_shape),
            next_obs=after,
            next_action_mask=next_mask,
            next_carry=recorded(out.carry, policy.stored_carry_shape),
            action=out.action,
            z=out.z,
            behaviour_logp=out.behaviour_logp,
            reward=rng.normal(size=n).astype(np.float32),
            terminated=failed,
            truncated=ended & ~failed,
        )
        obs, mask, start = after, next_mask, np.where(ended, 0, start + 1)
        carry, prev_action = out.carry.copy(), out.action.copy()
        carry[ended], prev_action[ended] = policy.initial_carry(n)[ended], 0.0
