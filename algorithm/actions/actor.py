"""Actor from observations to actions, for a policy of any family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from algorithm.actions.noise import Noise, NoNoise
from algorithm.actions.parts import ActionParts
from algorithm.core.data import ActorOutput, Array, Bool, Float
from algorithm.core.seeding import restore_generator
from algorithm.core.spec import AgentSpec
from algorithm.extensions.base import Extension
from algorithm.nn.acting_model import ActingModel
from algorithm.nn.distributions import HybridAction
from algorithm.nn.layer_noise import LayerNoise
from algorithm.nn.numpy_program import NumpyPrograms


@dataclass(frozen=True)
class _Drawn:
    """Actions of N agents before they are flat."""

    z: Tensor  # [N, A_c]
    onehot: Tensor  # [N, ΣN]
    logp: Tensor  # [N, H]


class Actor:
    """Actor for any number of agents in one forward pass.

    model:     the networks; a learner's own in the same process, copies elsewhere
    parts:     the two parts of an action
    exploring: with noise in layers, and with the extensions that choose among sampled actions
    seed:      of the sampled actions
    extensions: those of the learner
    noise:     added to actions that are not greedy
    value_of:  values [..., N] of a critic's outputs [..., N·K]; None: the outputs are values
    """

    def __init__(
        self,
        model: ActingModel,
        parts: ActionParts,
        *,
        device: torch.device,
        exploring: bool,
        seed: int,
        extensions: Sequence[Extension] = (),
        noise: Noise | None = None,
        value_of: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._value_of = value_of or _as_it_is
        self._model, self._parts, self._device = model, parts, device
        self._noise = noise or NoNoise()
        self._scorers = [x for x in extensions if exploring and x.num_candidates > 1]
        self._num_candidates = max((x.num_candidates for x in self._scorers), default=1)
        critics = [model.q] if parts.discrete.asks_critics else []
        layers = [model.rep, model.policy, *(member for q in critics for member in q.members)]
        self._layer_noise = LayerNoise(layers, on=exploring)
        self._generator = torch.Generator(device).manual_seed(seed)
        self._has_memory = model.rep.carry_shape != (0,)
        self._names: tuple[str, ...] = ()  # of the observations, in the order of the first ones
        modules = [model.normaliser, model.rep, model.policy, *critics, *self._scorers]
        self._act = {
            greedy: NumpyPrograms(partial(self._acted, greedy=greedy), self._generator, modules)
            for greedy in (False, True)
        }

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """Shape of one carry in the replay; (0,) for nothing."""
        return self._model.rep.stored_carry_shape

    def initial_carry(self, n: int) -> Float:
        """Return the carry of ``n`` agents at the start of their episodes, [n, *C]."""
        return self._model.rep.initial_carry(n).cpu().numpy()

    def act(
        self,
        obs: Mapping[str, Array],
        prev_action: Float,
        carry: Float,
        action_mask: Bool,
        *,
        greedy: bool = False,
    ) -> ActorOutput:
        """Return the actions of N agents; ``greedy`` takes the mode instead of a sample.

        obs: name -> [N, ...]; prev_action [N, A], zeros at an episode's start; carry [N, *C]; action_mask
        [N, ΣN], true where a discrete action is allowed.
        """
        self._layer_noise.apply(self._generator)
        inputs = [prev_action, carry, action_mask, *(obs[name] for name in self._names_of(obs))]
        z, onehot, logp, *after = self._act[greedy](len(prev_action), inputs)
        u = self._parts.continuous.squash(z)
        return ActorOutput(
            action=np.concatenate([onehot, u], 1) if onehot.shape[1] else u,
            z=z,
            behaviour_logp=logp,
            carry=after[0] if after else carry,
        )

    def way(self, spec: AgentSpec, n: int) -> str:
        """Return what computes the actions of ``n`` agents, for the start screen: numpy, or torch and why."""
        obs = {name: np.zeros((n, *shape), dtype) for name, shape, dtype in spec.obs.items()}
        inputs = [spec.action.padding(n), self.initial_carry(n), spec.action.all_allowed(n)]
        why = self._act[False].reason([*inputs, *(obs[name] for name in self._names_of(obs))])
        return "numpy" if why is None else f"torch: {why}"

    def renew(self) -> None:
        """Read attributes of the networks anew at the next action: programs of numpy hold them.

        Done at each checkpoint, so that a run acts as one that begins there.
        """
        for programs in self._act.values():
            programs.renew()

    def _names_of(self, obs: Mapping[str, Array]) -> tuple[str, ...]:
        self._names = self._names or tuple(obs)
        return self._names

    def _acted(self, inputs: Sequence[Tensor], *, greedy: bool) -> list[Tensor]:
        """Return z [N, A_c], one-hots [N, ΣN], log-probabilities [N, H], and carries [N, *C] if any."""
        prev_action, carry, mask, *values = inputs
        obs = dict(zip(self._names, values, strict=True))
        seen, state, after = self._encode(obs, prev_action, carry)
        policy = self._model.policy(state, seen)
        one = partial(self._draw, policy, state, mask, greedy=greedy)
        drawn = self._most_wanted(one, state) if self._scorers and not greedy else one()
        return [drawn.z, drawn.onehot, drawn.logp, *after]

    def _draw(self, policy: HybridAction, state: Tensor, mask: Tensor, *, greedy: bool) -> _Drawn:
        parts, noise = self._parts, self._noise
        z, c_logp = parts.continuous.act(policy, self._generator, greedy=greedy, noise=noise)
        onehot, d_logp = parts.discrete.act(
            policy,
            mask,
            lambda: self._value_of(self._model.q.frozen(state, z.tanh())).mean(0),
            self._generator,
            greedy=greedy,
            noise=noise,
        )
        logp = torch.stack([x for x in (d_logp, c_logp) if x is not None], -1)
        return _Drawn(z=z, onehot=onehot, logp=logp)

    def _most_wanted(self, draw: Callable[[], _Drawn], state: Tensor) -> _Drawn:
        """Return each agent's draw of the highest score, summed over the extensions, of several.

        Its log-probability is that of the policy: the effect of the choice on it has no closed form.
        """
        drawn = [draw() for _ in range(self._num_candidates)]
        action = torch.stack([torch.cat([one.onehot, one.z.tanh()], -1) for one in drawn], 1)
        scores = sum(scorer.score_actions(state, action) for scorer in self._scorers)
        assert isinstance(scores, Tensor)
        best, rows = scores.argmax(1), torch.arange(len(state), device=self._device)

        def chosen(part: Callable[[_Drawn], Tensor]) -> Tensor:
            return torch.stack([part(one) for one in drawn], 1)[rows, best]

        return _Drawn(
            z=chosen(lambda one: one.z),
            onehot=chosen(lambda one: one.onehot),
            logp=chosen(lambda one: one.logp),
        )

    @torch.inference_mode()
    def remember(self, obs: Mapping[str, Array], prev_action: Float, carry: Float) -> Float:
        """Return the carry [N, *C] after an observation without an action of this actor; see :meth:`act`."""
        if not self._has_memory:
            return carry
        seen = {name: self._tensor(value) for name, value in obs.items()}
        _, _, after = self._encode(seen, self._tensor(prev_action), self._tensor(carry))
        return after[0].cpu().numpy()

    def _encode(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor
    ) -> tuple[Mapping[str, Tensor], Tensor, list[Tensor]]:
        """Return normalised observations name -> [N, ...], states [N, S], and carries [N, *C] if any."""
        seen = self._model.normaliser(obs)
        state, after = self._model.rep(
            {name: value.unsqueeze(1) for name, value in seen.items()},
            prev_action.unsqueeze(1),
            carry,
            torch.ones(len(prev_action), 1, dtype=torch.bool, device=self._device),
        )
        return seen, state[:, 0], [after[:, 0]] if self._has_memory else []

    def random_state(self) -> NDArray[np.uint8]:
        """Return the state of the generator, for a checkpoint."""
        return self._generator.get_state().numpy()

    def load_random_state(self, state: NDArray[np.uint8]) -> None:
        """Restore the result of :meth:`random_state`; begin anew if that was on another kind of device."""
        restore_generator(self._generator, torch.from_numpy(state))

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _as_it_is(q: Tensor) -> Tensor:
    return q
