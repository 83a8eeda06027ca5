"""Choice of actions by networks, as a function of tensors or of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from algorithm.actions.continuous import Noise
from algorithm.actions.parts import ActionParts
from algorithm.extensions.base import Extension
from algorithm.nn.acting import ActingModel, NoFormError, form_of
from algorithm.nn.protocols import HybridAction
from algorithm.ops import library
from algorithm.ops.shapes import total

TensorOrArray = Any
"""A tensor or an array."""

Candidate = tuple[TensorOrArray, TensorOrArray]
"""Random numbers of a sample: normal ones [N, A_c] and uniform ones [N, ΣN]."""

MODE: Candidate = None, None
"""In place of a sample: choose the mode."""


class DrawnAction(NamedTuple):
    """Actions of N agents, before the parts are joined into flat actions."""

    z: TensorOrArray  # [N, A_c] before squashing
    onehot: TensorOrArray  # [N, ΣN] discrete choices
    logp: TensorOrArray  # [N, H] log-probabilities to be recorded


@dataclass(frozen=True)
class ActionChoice:
    """Choice of N agents' actions, as a function of tensors alone, or of arrays; see :meth:`with_arrays`.

    scorers:    extensions that choose among several candidates
    value_of:   function from a critic's outputs [..., N·D] to values [..., N]
    has_memory: there is a carry
    absent:     name -> shape of observations that only critics see; they are 0 if an export leaves them out
    """

    model: ActingModel
    parts: ActionParts
    noise: Noise
    scorers: Sequence[Extension]
    value_of: Callable[[Any], Any]
    has_memory: bool
    absent: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __call__(
        self,
        obs: Mapping[str, TensorOrArray],
        prev_action: TensorOrArray,
        carry: TensorOrArray,
        mask: TensorOrArray,
        draws: Sequence[Candidate],
    ) -> tuple[DrawnAction, list[TensorOrArray]]:
        """Return actions, and carries [N, *C] if any; arguments as of :meth:`Actor.act`.

        draws: normal [N, A_c] and uniform numbers [N, ΣN] of each candidate, or ``MODE`` alone
        """
        seen, state, after = self.encode(obs, prev_action, carry)
        policy = self.model.policy(state, seen)
        drawn = [self.draw(policy, state, mask, *pair) for pair in draws]
        return drawn[0] if len(drawn) == 1 else self._most_wanted(drawn, state), after

    def with_arrays(self, device: torch.device) -> ActionChoice:
        """Return the same for arrays. Raises NoFormError for what is not on a CPU or has no form in numpy."""
        if device.type != "cpu":
            raise NoFormError(f"on {device.type}")
        return replace(
            self,
            model=form_of(self.model),
            value_of=lambda values: self.value_of(torch.from_numpy(values)).numpy(),
        )

    def encode(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor
    ) -> tuple[Mapping[str, Tensor], Tensor, list[Tensor]]:
        """Return normalised observations name -> [N, ...], states [N, S], and carries [N, *C] if any."""
        for name, shape in self.absent.items():  # zeros without N, which an exported graph leaves open
            obs = {**obs, name: prev_action.detach()[:, :1] * prev_action.new_zeros(shape)}
        seen = self.model.normaliser(obs)
        state, after = self.model.rep(
            {name: value[:, None] for name, value in seen.items()},
            prev_action[:, None],
            carry,
            library.of(prev_action).true(prev_action),
        )
        return seen, state[:, 0], [after[:, 0]] if self.has_memory else []

    def draw(
        self, policy: HybridAction, state: Tensor, mask: Tensor, normal: Tensor | None, uniform: Tensor | None
    ) -> DrawnAction:
        """Return actions of a policy in states [N, S]; normal [N, A_c], uniform [N, ΣN], None: the mode."""
        z, c_logp = self.parts.continuous.act(policy, normal, self.noise)
        lib = library.of(z)
        onehot, d_logp = self.parts.discrete.act(
            policy,
            mask,
            lambda: total(self.value_of(q.frozen(state, lib.tanh(z))).mean(0) for q in self.model.critics),
            uniform,
            self.noise,
        )
        columns = [x if x.ndim > 1 else x[:, None] for x in (d_logp, c_logp) if x is not None]
        logp = lib.cat(columns, -1) if len(columns) > 1 else columns[0]
        return DrawnAction(z=z, onehot=onehot, logp=logp)

    def _most_wanted(self, drawn: Sequence[DrawnAction], state: Tensor) -> DrawnAction:
        """Return the sample with the highest score for each agent; scores are summed over extensions.

        The log-probability is the policy's: the effect of the choice on it has no closed form.
        """
        lib = library.of(state)
        action = [torch.as_tensor(lib.cat([x.onehot, lib.tanh(x.z)], -1)) for x in drawn]
        seen = torch.as_tensor(state), torch.stack(action, 1)
        with torch.no_grad():
            scores = sum(scorer.score_actions(*seen) for scorer in self.scorers)
        assert isinstance(scores, Tensor)
        best = scores.argmax(1)
        rows = torch.arange(len(best), device=best.device)
        parts = (torch.stack([*map(torch.as_tensor, part)], 1) for part in zip(*drawn, strict=True))
        chosen = (part[rows, best] for part in parts)
        return DrawnAction(*(x if isinstance(state, Tensor) else x.numpy() for x in chosen))
