"""Actor from observations to actions, for a policy of any family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.actions.choice import MODE, ActionChoice, Candidate, DrawnAction, TensorOrArray
from algorithm.actions.continuous import Noise, NoNoise
from algorithm.actions.parts import ActionParts
from algorithm.core.data import ActorOutput, Array, Bool, Float
from algorithm.extensions.base import Extension
from algorithm.nn.acting import ActingModel, NoFormError, is_ours
from algorithm.nn.layers.noisy import LayerNoise

MANY = 1024
"""Number of agents from which torch is faster than numpy: its matrix products then outweigh its overhead."""


class Actor:
    """Actor for any number of agents in one forward pass.

    model:     the networks; the learner's own in its process, copies elsewhere
    parts:     the two parts of an action
    exploring: use noise in layers, and extensions that choose among sampled actions
    seed:      of the sampled actions
    extensions: those of the learner
    noise:     added to actions that are not greedy
    value_of:  values [..., N] of a critic's outputs [..., N·D]; None: the outputs are values

    choice: what chooses the actions, as a function of tensors alone
    by_numpy: the same of arrays, or why torch computes it; None: not known yet
    rng:      random numbers of the actions, the same on every device
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
            has_memory=model.rep.carry_shape != (0,),
        )
        self.by_numpy: ActionChoice | str | None = None
        layers = [model.rep, model.policy, *(member for q in critics for member in q.members)]
        self._layer_noise = LayerNoise(layers, on=exploring)
        self._layer_generator = torch.Generator(device)
        self.rng = np.random.default_rng(seed)

    @override
    def __getstate__(self) -> dict[str, object]:
        """Return all but the forms of numpy, which are made anew where it is unpickled."""
        return {**vars(self), "by_numpy": None}

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
    ) -> ActorOutput:
        """Return the actions of N agents; ``greedy`` takes the mode instead of a sample.

        obs: name -> [N, ...]; prev_action [N, A], zeros at an episode's start; carry [N, *C]; action_mask
        [N, ΣN], true where a discrete action is allowed.
        """
        if self._layer_noise:  # its layers draw on their own device
            seed = int(self.rng.integers(2**63))
            self._layer_noise.apply(self._layer_generator.manual_seed(seed))
        draws = [MODE] if greedy else self._draws(action_mask.shape, prev_action.shape[1])
        drawn, after = self._chosen(obs, prev_action, carry, action_mask, draws)
        u = self._parts.continuous.squash(drawn.z)
        return ActorOutput(
            action=np.concatenate([drawn.onehot, u], 1) if drawn.onehot.shape[1] else u,
            z=drawn.z,
            behaviour_logp=drawn.logp,
            carry=after[0] if after else carry,
        )

    def _chosen(
        self,
        obs: Mapping[str, Array],
        prev_action: Float,
        carry: Float,
        mask: Bool,
        draws: Sequence[Candidate],
    ) -> tuple[DrawnAction, list[TensorOrArray]]:
        """Return results of the choice, as arrays; see :meth:`ActionChoice.__call__`."""
        chooses = self._numpy_for(len(prev_action))
        if not isinstance(chooses, str):
            return _quietly(chooses, obs, prev_action, carry, mask, draws)
        with torch.inference_mode():
            drawn, after = self.choice(
                {name: self._tensor(x) for name, x in obs.items()},
                self._tensor(prev_action),
                self._tensor(carry),
                self._tensor(mask),
                [pair if pair is MODE else (self._tensor(pair[0]), self._tensor(pair[1])) for pair in draws],
            )
        return DrawnAction(*(x.cpu().numpy() for x in drawn)), [x.cpu().numpy() for x in after]

    def _numpy_for(self, n: int) -> ActionChoice | str:
        """Return the numpy form of ``choice`` for n agents, or why torch computes it."""
        if n >= MANY:
            return f"{n:,} rows"
        if self.by_numpy is None:
            try:
                self.by_numpy = self.choice.with_arrays(self._device)
            except NoFormError as error:
                self.by_numpy = str(error)
        return self.by_numpy

    def way(self, n: int) -> str:
        """Return the library that computes the actions of ``n`` agents, for the start screen."""
        if isinstance(reason := self._numpy_for(n), str):
            return f"torch: {reason}"
        networks = self.choice.model.rep, self.choice.model.policy
        in_torch = [type(network).__qualname__ for network in networks if not is_ours(network)]
        return f"numpy, {' and '.join(in_torch)} in torch" if in_torch else "numpy"

    def renew(self) -> None:
        """Read attributes of the networks anew at the next action: forms of numpy hold them.

        Done at each checkpoint, so that a run acts as one that begins there.
        """
        self.by_numpy = None

    def _draws(self, shape: tuple[int, ...], actions: int) -> list[Candidate]:
        """Draw normal numbers [N, A_c] and uniform ones [N, ΣN] for each candidate.

        shape: N and ΣN; actions: A
        """
        n, discrete = shape
        return [
            (
                self.rng.standard_normal((n, actions - discrete), np.float32),
                self.rng.random((n, discrete), np.float32),
            )
            for _ in range(self._num_candidates)
        ]

    @torch.inference_mode()
    def remember(self, obs: Mapping[str, Array], prev_action: Float, carry: Float) -> Float:
        """Return the carry [N, *C] after an observation without an action of this actor; see :meth:`act`."""
        if not self.choice.has_memory:
            return carry
        seen = {name: self._tensor(value) for name, value in obs.items()}
        _, _, after = self.choice.encode(seen, self._tensor(prev_action), self._tensor(carry))
        return after[0].cpu().numpy()

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self._device)


@np.errstate(all="ignore")  # torch says nothing of log 0
def _quietly(choice: ActionChoice, *inputs: TensorOrArray) -> tuple[DrawnAction, list[TensorOrArray]]:
    return choice(*inputs)


def _same(values: Tensor) -> Tensor:
    return values
