"""The steps of an update, compiled by ``torch.compile``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from os import environ
from typing import cast

import torch
from torch import Tensor, nn

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import Model
from algorithm.agents.off_policy.records import CriticResult, Draws
from algorithm.agents.off_policy.rules import EAGER_FIRST, WORTH, planned_updates
from algorithm.agents.off_policy.update import OffPolicyLearner
from algorithm.core.data import SequenceBatch
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.learning.compiled import CompiledFunction, NotCompilableError, Returned
from algorithm.nn.learning.flat import NoTarget
from algorithm.nn.learning.functional import Functional
from algorithm.nn.learning.optimiser import FlatAdam
from algorithm.nn.protocols import Obs

Step = Callable[..., Returned]
"""Step of an update; its first argument is the batch, its last one computes the gradients."""


class CompiledUpdate:
    """Both steps of a learner's update as compiled graphs; eager again once a graph fails to compile.

    eager_first: updates before the compiled ones, counted over a training and all its resumes
    graphs:      number of graphs compiled so far
    on_message:  called with a line when compilation begins or fails
    """

    def __init__(self, learner: OffPolicyLearner, eager_first: int = 0) -> None:
        self._learner, self.eager_first = learner, eager_first
        bounds = [critics.bounds for critics in learner.horizons if critics.bounds is not None]
        others, steps = [*bounds, learner.objective, *learner.extensions], list(learner.optimisers().values())
        self._functional = functional_of(learner.model, others, steps, gate=learner.encoder)
        self._function = CompiledFunction(self._pure, guarded="_modules")
        self._kinds = set[object]()
        self._fails, self.graphs = False, 0
        self.on_message: Callable[[str], None] = lambda _: None

    def _pure(self, step: Step[Returned], *arguments: object) -> Returned:
        """Take a step as a function of all tensors that it reads and writes; that is what is compiled."""
        return self._functional.call(step, *arguments, self._functional)

    def learn_critics(self, batch: SequenceBatch, draws: Draws) -> CriticResult:
        """Take the critics' step; see :meth:`.OffPolicyLearner.learn_critics`."""
        return self._take(self._learner.learn_critics, batch, draws)

    def learn_policy(self, batch: SequenceBatch, obs: Obs, state: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Take the policy's step; see :meth:`.OffPolicyLearner.learn_policy`."""
        return self._take(self._learner.learn_policy, batch, obs, state, noise)

    def _take(self, step: Step[Returned], batch: SequenceBatch, *arguments: object) -> Returned:
        """Take a step by its graph, which is compiled at first use; that takes some ten seconds.

        There is a graph for each step, shape of batches, and phase of the batch norms' warm-up.
        """
        if self._fails:
            return step(batch, *arguments)
        kind = step.__name__, self._learner.norm_ready[step.__name__], batch.reward.shape
        new = kind not in self._kinds
        if new:
            self._kinds.add(kind)
            self.graphs += 1
            if self.graphs == 1:
                self.on_message("compiling the update: up to a minute the first time, longer with a memory")
        try:
            self._functional.check()
            with self._learner.model.training_mode() if new else nullcontext():
                return cast(Returned, self._function(kind, step, batch, *arguments))
        except NotCompilableError as error:
            self._fails = True
            self.on_message(f"the update cannot be compiled, training continues without that: {error}")
            return step(batch, *arguments)


def compile_steps(learner: OffPolicyLearner, max_step: int, *, images: bool) -> CompiledUpdate | str:
    """Set ``learner.compiled`` if compilation pays; return the compiled steps, or the reason against them.

    max_step, images: as of :func:`reason_against`
    """
    reason = reason_against(learner.keys, learner.device, max_step=max_step, images=images)
    if reason is not None:
        return reason
    learner.compiled = CompiledUpdate(learner, EAGER_FIRST if learner.keys.compile == "auto" else 0)
    return learner.compiled


def functional_of(
    model: Model, others: Sequence[nn.Module], steps: Sequence[FlatAdam], *, gate: slice
) -> Functional:
    """Return the networks as pure functions of the storages that an update writes.

    others: modules besides the model's
    steps:  all optimisers
    gate:   range of the encoder's parameters in the first optimiser's storage
    """
    networks = [model.rep, model.policy, *_ensembles(model.critics), *others]
    if not isinstance(model.target, NoTarget):
        networks += [model.target_rep, *_ensembles(model.target_critics)]
        networks += [model.target_policy] if model.policy_target is not None else []
    return Functional(networks, steps, gate=gate)


def _ensembles(critics: Sequence[Ensemble]) -> list[nn.Module]:
    return [module for q in critics for module in (q, *q.copies)]


def reason_against(
    config: OffPolicyConfig, device: torch.device, *, max_step: float, images: bool = False
) -> str | None:
    """Return the reason why updates are not compiled; None: they are compiled.

    max_step: environment steps of the training; negative: it has no end
    images:   observations have images; compilation does not make convolutions faster
    """
    planned = planned_updates(config, max_step)
    compilers = [environ.get("CXX"), "g++", "clang++", "c++", "cl"]
    has_compiler = any(shutil.which(compiler) for compiler in compilers if compiler)
    reasons = (
        (config.compile == "off", "it is off"),
        (config.compile == "auto" and planned < WORTH, f"{planned:,.0f} updates are too few for it"),
        (config.compile == "auto" and images, "it does not make convolutions faster"),
        (device.type == "cpu" and not has_compiler, "there is no C++ compiler (apt install g++)"),
    )
    return next((reason for holds, reason in reasons if holds), None)
