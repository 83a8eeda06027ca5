"""Updates of the learner, taken as they are written or as a compiled graph."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import environ
from typing import cast

import torch
from torch import nn
from typing_extensions import TypeVarTuple, Unpack

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import Model
from algorithm.agents.off_policy.rules import WORTH, planned_updates
from algorithm.core.data import SequenceBatch
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.learning.compiled import CompiledFunction, NotCompilableError, Returned
from algorithm.nn.learning.flat import NoTarget
from algorithm.nn.learning.gradients import Functional, Gradients
from algorithm.nn.learning.optimiser import FlatAdam

Say = Callable[[str], None]
Arguments = TypeVarTuple("Arguments")


class EagerParts:
    """Parts of an update, taken as they are written.

    by:            gradients
    training_mode: of the networks
    """

    graphs = 0

    def __init__(self, by: Gradients, training_mode: Callable[[], AbstractContextManager[None]]) -> None:
        self.by, self.training_mode = by, training_mode

    def __call__(
        self,
        part: Callable[[SequenceBatch, Unpack[Arguments], Gradients], Returned],
        _: bool,
        batch: SequenceBatch,
        *args: Unpack[Arguments],
    ) -> Returned:
        """Take the steps of a part."""
        with self.training_mode():
            return part(batch, *args, self.by)


class CompiledParts:
    """Parts of an update, each a compiled graph; as they are written from the first that cannot be one.

    eager:      parts as they are written
    functional: the networks as pure functions
    rounded:    large matrix products are those of factors in bfloat16
    graphs:     that were compiled since this was set to 0
    """

    def __init__(self, eager: EagerParts, functional: Functional, *, rounded: bool = False) -> None:
        self._eager, self._check = eager, functional.check

        def pure(part: Callable[..., Returned], *args: object) -> Returned:
            return functional.call(part, *args, functional)

        self._function = CompiledFunction(pure, rounded=rounded, guarded="_modules")
        self._kinds = set[object]()
        self._fails, self.graphs = False, 0
        self._say: Say = lambda _: None

    def tell(self, say: Say) -> None:
        """Have compiling announced by ``say``, and what goes wrong there."""
        self._say = say

    def __call__(
        self,
        part: Callable[[SequenceBatch, Unpack[Arguments], Gradients], Returned],
        corrects: bool,
        batch: SequenceBatch,
        *args: Unpack[Arguments],
    ) -> Returned:
        """Take the steps of a part; the first of a kind is compiled before, which takes some ten seconds.

        corrects: its batch norms may be past their warm-up
        batch:    a graph is for batches of one shape, and is made in training mode
        """
        kind = part.__name__, corrects, batch.reward.shape
        if self._fails:
            return self._eager(part, corrects, batch, *args)
        new = kind not in self._kinds
        if new:
            self._kinds.add(kind)
            self.graphs += 1
            if self.graphs == 1:
                self._say("compiling the update: up to a minute the first time, some with a memory")
        try:
            self._check()
            with self._eager.training_mode() if new else nullcontext():
                return cast(Returned, self._function(kind, part, batch, *args))
        except NotCompilableError as error:
            self._fails = True
            self._say(f"the update is not compiled, the training goes on without that: {error}")
            return self._eager(part, corrects, batch, *args)


def functional_of(
    model: Model, others: Sequence[nn.Module], steps: Sequence[FlatAdam], *, gate: slice
) -> Functional:
    """Return the networks as pure functions of the storages that an update writes.

    others: modules besides the model's · steps: all optimisers · gate: the encoder's part of the first one's
    """
    networks = [model.rep, model.policy, *_ensembles(model.critics), *model.bounds, *others]
    if not isinstance(model.target, NoTarget):
        networks += [model.target_rep, *_ensembles(model.target_critics)]
        networks += [model.target_policy] if model.policy_target is not None else []
    return Functional(networks, steps, gate=gate)


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
