"""Updates of the learner, taken as they are written or as a compiled graph."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from os import environ

import torch
from torch import Tensor, nn
from typing_extensions import TypedDict

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import Model
from algorithm.agents.off_policy.rules import WORTH, planned_updates
from algorithm.core.data import SequenceBatch
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.learning.compiled import CompiledFunction, NotCompilableError
from algorithm.nn.learning.gradients import Functional, Gradients
from algorithm.nn.learning.optimiser import FlatAdam
from algorithm.nn.learning.target import NoTarget

Say = Callable[[str], None]


@dataclass(frozen=True)
class Turn:
    """Parts of an update besides that of the critics, and the way of its norms."""

    policy: bool  # the policy and its temperature are updated
    target: bool  # the target networks follow
    corrects: tuple[bool, bool]  # batch norms of critics and of the policy may be past their warm-up


@dataclass(frozen=True)
class UpdateNoise:
    """Random numbers of an update, drawn before it: normal ones of actions, and others."""

    ahead: Tensor  # [P, A_c] at all tokens behind the burn-in
    now: Tensor | None  # [P, A_c] at the learned tokens, where the policy is updated
    critics: Tensor | None  # [M] those of the targets; None: all
    extensions: Sequence[Mapping[str, object]]  # for each step of their own parts: by names of classes


class UpdateOutput(TypedDict):
    """Result of an update."""

    priority: Tensor  # [B]
    carry: Tensor | None  # [B, W+1, *C]
    metrics: dict[str, Tensor]


Take = Callable[[SequenceBatch, UpdateNoise, Turn], UpdateOutput]
"""Update from a batch on the learner's device."""

TakeBy = Callable[[SequenceBatch, UpdateNoise, Turn, Gradients], UpdateOutput]
"""Update whose gradients come in a way that is an argument."""


class CompiledUpdates:
    """Updates as a compiled graph for each kind of turn; as they are written from the first that cannot be.

    eager:      updates as they are written
    functional: the networks as pure functions
    take:       an update, to be compiled
    training_mode: of the networks; a graph is made in it and stays so
    rounded:    large matrix products are those of factors in bfloat16
    """

    def __init__(
        self,
        eager: Take,
        functional: Functional,
        take: TakeBy,
        training_mode: Callable[[], AbstractContextManager[None]],
        *,
        rounded: bool = False,
    ) -> None:
        self._eager = eager

        def pure(batch: SequenceBatch, noise: UpdateNoise, turn: Turn) -> UpdateOutput:
            return functional.call(take, batch, noise, turn, functional)

        self._check = functional.check
        self._training_mode = training_mode
        self._function = CompiledFunction(pure, rounded=rounded, guarded="_modules")
        self._kinds = set[tuple[Turn, torch.Size]]()
        self._fails = self.compiled = False
        self._say: Say = _ignore

    def tell(self, say: Say) -> None:
        """Have compiling announced by ``say``, and what goes wrong there."""
        self._say = say

    def __call__(self, batch: SequenceBatch, noise: UpdateNoise, turn: Turn) -> UpdateOutput:
        """Take the steps; the first turn of its kind is compiled before, which takes some ten seconds."""
        kind = turn, batch.reward.shape
        self.compiled = not self._fails and kind not in self._kinds
        if self._fails:
            return self._eager(batch, noise, turn)
        if self.compiled:
            self._kinds.add(kind)
            self._say(
                "compiling the update: a minute the first time, with a memory some, seconds from then on"
            )
        try:
            self._check()
            with self._training_mode() if self.compiled else nullcontext():
                return self._function(kind, batch, noise, turn)
        except NotCompilableError as error:
            self._fails = True
            self._say(f"the update is not compiled, the training goes on without that: {error}")
            return self._eager(batch, noise, turn)


def functional_of(
    model: Model, others: Sequence[nn.Module], steps: Sequence[FlatAdam], *, gate: slice
) -> Functional:
    """Return the networks as pure functions of the storages that an update writes.

    others: modules besides the model's · steps: all optimisers · gate: the encoder's part of the first one's
    """
    networks = [model.rep, model.policy, *_ensembles(model.critics), *others]
    if isinstance(model.target, NoTarget):
        return Functional(networks, steps, gate=gate)
    networks += [model.target_rep, *_ensembles(model.target_critics)]
    targets = [model.target.flat.data]
    if model.policy_target is not None:
        networks.append(model.target_policy)
        targets.append(model.policy_target.flat.data)
    return Functional(networks, steps, targets, gate=gate)


def _ensembles(critics: Sequence[Ensemble]) -> list[nn.Module]:
    return [module for q in critics for module in (q, *q.copies)]


def reason_against(
    config: OffPolicyConfig,
    device: torch.device,
    *,
    max_step: float,
    images: bool = False,
) -> str | None:
    """Return why updates are not compiled; None: they are.

    max_step: environment steps of the training; negative: it has no end
    images:   some are observed; convolutions are no faster so
    """
    planned = planned_updates(config, max_step)
    compilers = [environ.get("CXX"), "g++", "clang++", "c++", "cl"]
    found = any(shutil.which(one) for one in compilers if one)
    reasons = (
        (config.compile == "off", "it is off"),
        (config.compile == "auto" and planned < WORTH, f"{planned:,.0f} updates are too few for it"),
        (config.compile == "auto" and images, "convolutions are no faster then"),
        (device.type == "cpu" and not found, "there is no C++ compiler (apt install g++)"),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _ignore(_: str) -> None: ...
