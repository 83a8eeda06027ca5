"""Actor from observations to actions, for a policy of any family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from algorithm.actions.continuous import Noise, NoNoise
from algorithm.actions.parts import ActionParts
from algorithm.core.data import ActorOutput, Array, Bool, Float
from algorithm.core.seeding import restore_generator
from algorithm.core.spec import AgentSpec
from algorithm.extensions.base import Extension
from algorithm.nn.acting.model import ActingModel
from algorithm.nn.acting.programs import NumpyPrograms
from algorithm.nn.distributions import HybridAction
from algorithm.nn.layers.noisy import LayerNoise
from algorithm.ops.shapes import added


class Actor:
    """Actor for any number of agents in one forward pass.

    model:     the networks; a learner's own in the same process, copies elsewhere
    parts:     the two parts of an action
    exploring: with noise in layers, and with the extensions that choose among sampled actions
    seed:      of the sampled actions
    extensions: those of the learner
    noise:     added to actions that are not greedy
    value_of:  values [..., N] of a critic's outputs [..., N·K]; None: the outputs are values

    choice: what chooses the actions, as a function of tensors alone
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
        self._parts, self._device = parts, device
        scorers = [x for x in extensions if exploring and x.num_candidates > 1]
        self._num_candidates = max((x.num_candidates for x in scorers), default=1)
        critics = model.critics if parts.discrete.asks_critics else ()
        self.choice = ActionChoice(
            ActingModel(model.normaliser, model.rep, model.policy, critics),
            parts,
            noise or NoNoise(),
            scorers,
            value_of or _same,
        )
        layers = [model.rep, model.policy, *(member for q in critics for member in q.members)]
        self._layer_noise = LayerNoise(layers, on=exploring)
        self._generator = torch.Generator(device).manual_seed(seed)
        self._programs = NumpyPrograms(self.choice, device)

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """Shape of one carry in the replay; (0,) for nothing."""
        return self.choice.model.rep.stored_carry_shape

    def initial_carry(self, n: int) -> Float:
        """Return the carry of ``n`` agents at the start of their episodes, [n, *C]."""
        return self.choice.model.rep.initial_carry(n).cpu().numpy()

    def act(
        self,
        obs: Mapping[str, Array],
        prev_action: Float,
        carry: Float,
        action_mask: Bool,
        *,
        greedy: bool = False,
        normal: Float | None = None,
    ) -> ActorOutput:
        """Return the actions of N agents; ``greedy`` takes the mode instead of a sample.

        obs: name -> [N, ...]; prev_action [N, A], zeros at an episode's start; carry [N, *C]; action_mask
        [N, ΣN], true where a discrete action is allowed; normal [N, A_c], noise of the continuous part, None:
        it is drawn.
        """
        self._layer_noise.apply(self._generator)
        inputs = self._inputs(obs, prev_action, carry, action_mask)
        if not greedy:
            inputs += self._draws(inputs, normal)
        z, onehot, logp, *after = self._programs((len(prev_action), greedy), inputs)
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
        action = spec.action
        inputs = self._inputs(obs, action.padding(n), self.initial_carry(n), action.all_allowed(n))
        before = self._generator.get_state()
        found = self._programs.decide([*inputs, *self._draws(inputs)])
        self._generator.set_state(before)
        return f"torch: {found}" if isinstance(found, str) else "numpy"

    def renew(self) -> None:
        """Read attributes of the networks anew at the next action: programs of numpy hold them.

        Done at each checkpoint, so that a run acts as one that begins there.
        """
        self._programs.renew()

    def _inputs(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, mask: Bool
    ) -> list[NDArray[Any]]:
        names = self.choice.names
        names += [] if names else obs
        return [prev_action, carry, mask, *(obs[name] for name in names)]

    def _draws(self, inputs: Sequence[NDArray[Any]], normal: Float | None = None) -> list[NDArray[Any]]:
        """Draw normal numbers [N, A_c] and uniform ones [N, ΣN] for each candidate; one of ``normal``."""
        prev_action, _, mask = inputs[:3]
        n, discrete = mask.shape
        if normal is not None:
            return [normal, self._drawn(torch.rand, (n, discrete))]
        sizes = (torch.randn, (n, prev_action.shape[1] - discrete)), (torch.rand, (n, discrete))
        return [self._drawn(make, size) for make, size in sizes * self._num_candidates]

    def _drawn(self, make: Callable[..., Tensor], size: tuple[int, int]) -> Float:
        if not size[1]:
            return np.empty(size, np.float32)
        return make(size, generator=self._generator, device=self._device).cpu().numpy()

    @torch.inference_mode()
    def remember(self, obs: Mapping[str, Array], prev_action: Float, carry: Float) -> Float:
        """Return the carry [N, *C] after an observation without an action of this actor; see :meth:`act`."""
        if not self.choice.has_memory:
            return carry
        seen = {name: self._tensor(value) for name, value in obs.items()}
        _, _, after = self.choice.encode(seen, self._tensor(prev_action), self._tensor(carry))
        return after[0].cpu().numpy()

    def random_state(self) -> NDArray[np.uint8]:
        """Return the state of the generator, for a checkpoint."""
        return self._generator.get_state().numpy()

    def load_random_state(self, state: NDArray[np.uint8]) -> None:
        """Restore the result of :meth:`random_state`; begin anew if that was on another kind of device."""
        restore_generator(self._generator, torch.from_numpy(state))

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _same(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True)
class DrawnAction:
    """Actions of N agents before they are flat."""

    z: Tensor  # [N, A_c]
    onehot: Tensor  # [N, ΣN]
    logp: Tensor  # [N, H]


@dataclass(frozen=True)
class ActionChoice:
    """Choice of N agents' actions, as a function of tensors alone.

    scorers: extensions that choose among several candidates
    names:   of the observations, in the order of the first ones
    absent:  observations that are not given, since only critics see them, and their shapes: they are 0
    """

    model: ActingModel
    parts: ActionParts
    noise: Noise
    scorers: Sequence[Extension]
    value_of: Callable[[Tensor], Tensor]
    names: list[str] = field(default_factory=list)
    absent: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return z [N, A_c], one-hots [N, ΣN], log-probabilities [N, H], and carries [N, *C] if any.

        inputs: actions before, carries, masks, observations; normal [N, A_c] and uniform numbers [N, ΣN] of
                each candidate, or none for the mode
        """
        prev_action, carry, mask, *others = inputs
        draws = others[len(self.names) :]
        seen, state, after = self.encode(dict(zip(self.names, others, strict=False)), prev_action, carry)
        policy = self.model.policy(state, seen)
        pairs = zip(draws[::2], draws[1::2], strict=True) if draws else [(None, None)]
        drawn = [self.draw(policy, state, mask, normal, uniform) for normal, uniform in pairs]
        best = drawn[0] if len(drawn) == 1 else self._most_wanted(drawn, state)
        return [best.z, best.onehot, best.logp, *after]

    @property
    def has_memory(self) -> bool:
        """Whether there is a carry."""
        return self.model.rep.carry_shape != (0,)

    def encode(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor
    ) -> tuple[Mapping[str, Tensor], Tensor, list[Tensor]]:
        """Return normalised observations name -> [N, ...], states [N, S], and carries [N, *C] if any."""
        zeros = {  # of an exported graph N is not known
            name: prev_action.detach()[:, :1] * prev_action.new_zeros(shape)
            for name, shape in self.absent.items()
        }
        seen = self.model.normaliser({**obs, **zeros})
        state, after = self.model.rep(
            {name: value.unsqueeze(1) for name, value in seen.items()},
            prev_action.unsqueeze(1),
            carry,
            torch.ones(prev_action.shape[0], 1, dtype=torch.bool, device=prev_action.device),
        )
        return seen, state[:, 0], [after[:, 0]] if self.has_memory else []

    def draw(
        self,
        policy: HybridAction,
        state: Tensor,
        mask: Tensor,
        normal: Tensor | None,
        uniform: Tensor | None,
    ) -> DrawnAction:
        """Return actions of a policy in states [N, S]; normal [N, A_c], uniform [N, ΣN], None: the mode."""
        z, c_logp = self.parts.continuous.act(policy, normal, self.noise)
        onehot, d_logp = self.parts.discrete.act(
            policy,
            mask,
            lambda: added(self.value_of(q.frozen(state, z.tanh())).mean(0) for q in self.model.critics),
            uniform,
            self.noise,
        )
        found = [x for x in (d_logp, c_logp) if x is not None]
        logp = torch.cat([x if x.dim() > 1 else x.unsqueeze(-1) for x in found], -1)
        return DrawnAction(z=z, onehot=onehot, logp=logp)

    def _most_wanted(self, drawn: Sequence[DrawnAction], state: Tensor) -> DrawnAction:
        """Return each agent's draw of the highest score, summed over the extensions.

        Its log-probability is that of the policy: the effect of the choice on it has no closed form.
        """
        action = torch.stack([torch.cat([one.onehot, one.z.tanh()], -1) for one in drawn], 1)
        scores = sum(scorer.score_actions(state, action) for scorer in self.scorers)
        assert isinstance(scores, Tensor)
        best, rows = scores.argmax(1), torch.arange(len(state), device=state.device)

        def chosen(part: Callable[[DrawnAction], Tensor]) -> Tensor:
            return torch.stack([part(one) for one in drawn], 1)[rows, best]

        return DrawnAction(
            z=chosen(lambda one: one.z),
            onehot=chosen(lambda one: one.onehot),
            logp=chosen(lambda one: one.logp),
        )
