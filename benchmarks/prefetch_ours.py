"""Worker: updates of a learner whose batches are drawn when it wants them, or ahead by threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from harness import our_version
from memory_ours import Timed
from replay import make_segment, make_spec
from setting import measure, report, update_arguments

from algorithm.config import load_config
from algorithm.data import Segment
from algorithm.replay.buffer import PrioritizedSampler, ReplayBuffer
from algorithm.run.agent import Agent
from algorithm.run.memory import MemoryBudget
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec
from ds.prefetch import PrefetchedReplay

TASK = Path(__file__).resolve().parent / "memory"
AHEAD = 5
EPISODE = 1000
IMAGE = (64, 64, 3)
CASES: dict[str, tuple[str, list[str]]] = {
    "vectors": ("default", ["sac_config.batch_size=256"]),
    "images": ("default", ["replay_config.capacity=5100"]),
    "windows": ("gru", []),
}
"""Name → section of ``memory/config.yaml`` and what is changed there."""


def spec_of(case: str) -> AgentSpec:
    """One continuous action, and an image or as many numbers as Pendulum has."""
    if case == "images":
        return AgentSpec(ObsSpec(("obs",), (IMAGE,), ("uint8",)), ActionSpec((), 1))
    return make_spec(3, 1)


def random_segment(
    spec: AgentSpec, rng: np.random.Generator, carry: tuple[int, ...], start: int, length: int
) -> Segment:
    """Random transitions of one stream, whose episodes have ``EPISODE`` steps."""
    made = make_segment(make_spec(3, 1), rng, start, length, last=start + length == EPISODE)
    made = replace(made, carry=np.zeros((length + 1, *carry), np.float32))
    if spec.obs.dtypes == ("uint8",):
        made = replace(made, obs={"obs": rng.integers(256, size=(length + 1, *IMAGE), dtype=np.uint8)})
    return made


def build(case: str, seed: int, threads: int) -> tuple[Agent, ReplayBuffer]:
    """An agent of which the learner is used, and a full replay beside it. threads: 0 draws when asked."""
    section, changes = CASES[case]
    config = load_config(str(TASK), section, changes).config
    agent = Agent(
        spec_of(case),
        config,
        nn_file=None,
        behaviour="default",
        seed=seed,
        device=torch.device("cpu"),
        memory=MemoryBudget(),
    )
    make: Callable[..., ReplayBuffer] = ReplayBuffer
    if threads:
        make = partial(PrefetchedReplay, threads=threads, ahead=AHEAD)
    sac, capacity, carry = config.sac_config, config.replay_config.capacity, agent.player.stored_carry_shape
    made = make(
        agent.spec,
        capacity=capacity,
        batch_size=sac.batch_size,
        burn_in=sac.burn_in_step,
        learn=sac.learn_step,
        n_step=sac.n_step,
        carry_shape=carry,
        sampler=PrioritizedSampler(),
        seed=seed,
    )
    rng = np.random.default_rng(seed)
    for _ in range(capacity // (EPISODE + 1)):
        made.add(random_segment(agent.spec, rng, carry, 0, EPISODE))
    return agent, made


def run(case: str, threads: int, *, seed: int, seconds: float, warm_up: float) -> dict[str, Any]:
    """Make updates for ``warm_up`` and then for ``seconds``, storing a transition before each.

    cpu_seconds:    of the process, all threads together.
    sample_seconds: that the learner spent on getting batches.
    """
    agent, made = build(case, seed, threads)
    rng, carry = np.random.default_rng(seed + 1000), agent.player.stored_carry_shape
    singles = cycle([random_segment(agent.spec, rng, carry, step, 1) for step in range(EPISODE)])
    sampling = Timed(made, "sample")

    def update() -> None:
        made.add(next(singles))
        result = agent.sac.update(made.sample())
        made.feedback(result)
        if result.carry is not None:
            made.refresh_carry(result)

    measure(update, warm_up, 0.0)
    sampling.clear()
    begin = process_time()
    updates, taken = measure(update, seconds, 0.0)
    answer = {
        "parameters": sum(agent.num_parameters().values()),
        "updates": updates,
        "seconds": taken,
        "cpu_seconds": process_time() - begin,
        "sample_seconds": sampling.seconds,
    }
    if isinstance(made, PrefetchedReplay):
        made.stop()
    return answer


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    parser = update_arguments(__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--prefetchers", type=int, required=True, help="threads that draw; 0: none")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    answer = run(asked.case, asked.prefetchers, seed=asked.seed, seconds=asked.seconds, warm_up=asked.warm_up)
    report("advanced-soft-actor-critic", our_version(), threads=torch.get_num_threads(), **answer)


if __name__ == "__main__":
    main()
