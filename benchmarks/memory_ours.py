"""Worker: updates of an agent with memory, their time by parts and what its encoders were given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from harness import our_version
from replay import make_segment, make_spec
from setting import Setting, measure, report, update_arguments

from algorithm.config import LoadedConfig, load_config
from algorithm.run.agent import Agent
from algorithm.run.memory import MemoryBudget

TASK = Path(__file__).resolve().parent / "memory"
SETTING = Setting(batch_size=64, transitions=20_000)
"""Sizes of observation, action, networks and replay; critics and policy have the default networks."""

CASES = ("gru", "lstm", "attn", "gru_long")
"""Sections of ``memory/config.yaml``."""


class Timed:
    """Stands in for a method of an object and adds up the seconds of its calls.

    clock: tells the time in seconds.
    """

    def __init__(self, owner: Any, method: str, clock: Callable[[], float] = perf_counter) -> None:
        self._call: Callable[..., Any] = getattr(owner, method)
        self._clock = clock
        self.clear()
        setattr(owner, method, self)

    def clear(self) -> None:
        """Begin again at nothing."""
        self.seconds = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Pass the call on."""
        begin = self._clock()
        try:
            return self._call(*args, **kwargs)
        finally:
            self.seconds += self._clock() - begin


class Encoder(Timed):
    """Stands in for the ``forward`` of a representation and counts its tokens, padding included."""

    def __init__(self, rep: torch.nn.Module, clock: Callable[[], float] = perf_counter) -> None:
        super().__init__(rep, "forward", clock)

    def clear(self) -> None:
        """Begin again at nothing."""
        super().clear()
        self.tokens = {True: 0, False: 0}  # with and without gradient

    def __call__(self, obs: Any, prev_action: Any, carry: Any, valid: torch.Tensor) -> Any:
        """Pass the call on; valid: [B, T]."""
        self.tokens[torch.is_grad_enabled()] += valid.numel()
        return super().__call__(obs, prev_action, carry, valid)


class Profile:
    """What an agent's updates spend their time on, and how often they encode a token."""

    def __init__(self, agent: Agent) -> None:
        model = agent.sac.model
        self._sampling = Timed(agent.replay, "sample")
        self._online, self._target = Encoder(model.rep), Encoder(model.target_rep)

    def clear(self) -> None:
        """Begin again at nothing."""
        for part in (self._sampling, self._online, self._target):
            part.clear()

    def divide(self, total: float) -> dict[str, float]:
        """The seconds of each part, which sum to ``total``."""
        parts = {
            "sampling": self._sampling.seconds,
            "online encoder": self._online.seconds,
            "target encoder": self._target.seconds,
        }
        return {**parts, "rest": total - sum(parts.values())}

    def tokens(self, updates: int) -> dict[str, float]:
        """Tokens that the encoders were given in each of so many updates."""
        counts = {
            "online, with gradient": self._online.tokens[True],
            "online, without": self._online.tokens[False],
            "target": sum(self._target.tokens.values()),
        }
        return {name: number / updates for name, number in counts.items()}


def load_case(case: str) -> LoadedConfig:
    """The configuration of a case."""
    return load_config(str(TASK), case)


def build(case: str, seed: int) -> Agent:
    """The agent that ``main.py`` would train with the default networks, its replay full of random steps."""
    agent = Agent(
        make_spec(SETTING.obs_size, SETTING.action_size),
        load_case(case).config,
        nn_file=None,
        behaviour="default",
        seed=seed,
        device=torch.device("cpu"),
        memory=MemoryBudget(),
    )
    rng, length = np.random.default_rng(seed), SETTING.episode_length
    carry = np.zeros((length + 1, *agent.player.stored_carry_shape), np.float32)
    for _ in range(SETTING.transitions // length):
        agent.add(replace(make_segment(agent.spec, rng, 0, length, last=True), carry=carry))
    return agent


def run(case: str, *, seed: int, seconds: float, warm_up: float) -> dict[str, Any]:
    """Make updates for ``warm_up`` and then for ``seconds``; what the second ones came to.

    cpu_seconds: of the process, all threads together.
    tokens:      in an update; ``windows`` are those of its batch, from the first of the burn-in to the last
                 successor.
    """
    agent = build(case, seed)
    sac, profile = agent.config.sac_config, Profile(agent)
    now = count(sac.start_step + 1)  # one update is owed for every step from here on

    def update() -> None:
        agent.learn(next(now))

    measure(update, warm_up, 0.0)
    profile.clear()
    begin = process_time()
    updates, taken = measure(update, seconds, 0.0)
    window = sac.burn_in_step + sac.learn_step + sac.n_step
    return {
        "parameters": sum(agent.num_parameters().values()),
        "updates": updates,
        "seconds": taken,
        "cpu_seconds": process_time() - begin,
        "time": profile.divide(taken),
        "tokens": {"windows": sac.batch_size * window, **profile.tokens(updates)},
    }


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    parser = update_arguments(__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    answer = run(arguments.case, seed=arguments.seed, seconds=arguments.seconds, warm_up=arguments.warm_up)
    report("advanced-soft-actor-critic", our_version(), threads=torch.get_num_threads(), **answer)


if __name__ == "__main__":
    main()
