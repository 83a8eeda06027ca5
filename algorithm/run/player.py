"""Who acts while training: at random at first, then the policy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from algorithm.data import Array, Bool, Float, State
from algorithm.sac.actor import Actor, ActorOutput
from algorithm.spec import Z_LIMIT, AgentSpec


class TrainingPlayer:
    """See :class:`~algorithm.run.group.Player`.

    actor:      samples from the policy, exploring
    rng:        of random actions
    repeat:     mean number of steps that a random continuous action is held, ≥ 1
    warming_up: act uniformly at random; whoever counts the steps sets it
    greedy:     take the policy's mode instead of a sample
    """

    def __init__(
        self,
        spec: AgentSpec,
        actor: Actor,
        rng: np.random.Generator,
        *,
        warming_up: bool,
        repeat: float = 1.0,
        greedy: bool = False,
    ) -> None:
        self._action, self._actor, self._rng, self._greedy = spec.action, actor, rng, greedy
        self._hold = 1.0 - 1.0 / repeat
        self.warming_up = warming_up

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """See :class:`~algorithm.run.group.Player`."""
        return self._actor.stored_carry_shape

    def initial_carry(self, n: int) -> Float:
        """See :class:`~algorithm.run.group.Player`."""
        return self._actor.initial_carry(n)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Sampled from the policy, or random while ``warming_up``.

        A random action is uniform. Its continuous part is held for a geometric number of steps: pushes that
        change direction at each step cancel out, and a task of momentum shows little of itself (arXiv
        2006.01782). Choices do not average, so they are always fresh. The log-probability is that of the
        uniform distribution, the marginal one.
        """
        if not self.warming_up:
            return self._actor.act(obs, prev_action, carry, action_mask, greedy=self._greedy)
        action, z, logp = self._action.random(self._rng, action_mask)
        if self._hold and self._action.continuous:
            # An episode's first action is drawn: the one before it is all zeros.
            held = (self._rng.random(len(z)) < self._hold) & prev_action.any(1)
            u = prev_action[held, self._action.discrete :]
            z[held] = np.arctanh(u.astype(np.float64)).clip(-Z_LIMIT, Z_LIMIT)
            action[:, self._action.discrete :] = np.tanh(z)
        after = self._actor.remember(obs, prev_action, carry)
        return ActorOutput(action=action, z=z, behaviour_logp=logp, carry=after)

    def state(self) -> State:
        """Of its random numbers, and whether it is warming up."""
        meta = {"warming_up": self.warming_up, "warm_up": self._rng.bit_generator.state}
        return State({"actor": self._actor.random_state()}, meta)

    def load_state(self, state: State) -> None:
        """Go on from what :meth:`state` gave."""
        self._actor.load_random_state(state.arrays["actor"].astype(np.uint8))
        self._rng.bit_generator.state = state.meta["warm_up"]
        self.warming_up = state.meta["warming_up"]
