"""Updates of the learner, taken as they are written or as a compiled graph."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import environ
from typing import Protocol

import torch
from torch import Tensor

from algorithm.data import SequenceBatch, UpdateResult
from algorithm.nn.compiled import CompiledFunction, NotCompilableError
from algorithm.sac.config import SacConfig
from algorithm.sac.rules import WORTH, planned_updates

Say = Callable[[str], None]


@dataclass(frozen=True)
class Turn:
    """Parts of an update besides that of the critics, and the way of its norms."""

    policy: bool  # the policy and its temperature are updated
    target: bool  # the target networks follow
    corrects: bool  # batch norms may be past their warm-up


Take = Callable[[SequenceBatch, Turn], UpdateResult]


class Updates(Protocol):
    """Taker of updates.

    compiled: the last call compiled something before, so that it took long
    """

    compiled: bool

    def __call__(self, batch: SequenceBatch, turn: Turn) -> UpdateResult:
        """Take an update from a batch on the learner's device."""
        ...

    def tell(self, say: Say) -> None:
        """Have compiling announced by ``say``, and what goes wrong there."""
        ...


class EagerUpdates:
    """Updates as they are written.

    take: one update · generator: of all its random numbers
    """

    compiled = False

    def __init__(self, take: Take, generator: torch.Generator) -> None:
        self._take = take

    def __call__(self, batch: SequenceBatch, turn: Turn) -> UpdateResult:
        """Take it."""
        return self._take(batch, turn)

    def tell(self, say: Say) -> None:
        """Do nothing: there is nothing to say."""


class CompiledUpdates:
    """Updates as a compiled graph for each kind of turn; as they are written from the first that cannot be.

    take:      one update
    generator: of all its random numbers
    rounded:   large matrix products are those of factors in bfloat16
    """

    def __init__(self, take: Take, generator: torch.Generator, *, rounded: bool = False) -> None:
        self._take = take
        self._function = CompiledFunction(self._taken, generator, rounded=rounded)
        self._turn = Turn(policy=True, target=True, corrects=False)
        self._names: dict[Turn, list[str]] = {}  # of the results of a kind of turn
        self._obs: list[str] = []
        self._why: str | None = None  # they are not compiled
        self._say: Say = _ignore
        self.compiled = False

    def tell(self, say: Say) -> None:
        """Have compiling announced by ``say``, and what goes wrong there."""
        self._say = say

    def __call__(self, batch: SequenceBatch, turn: Turn) -> UpdateResult:
        """Take it; the first of its kind is compiled before, which takes some ten seconds."""
        self.compiled = self._why is None and turn not in self._names
        if self._why is not None:
            return self._take(batch, turn)
        self._turn, self._obs = turn, list(batch.obs)
        if self.compiled:
            self._say(
                "compiling the update: a minute the first time, with a memory some, seconds from then on"
            )
        others = [value for name, value in vars(batch).items() if name != "obs"]
        try:
            found = self._function(turn, [*batch.obs.values(), *others])
        except NotCompilableError as error:
            self._why = str(error)
            self._say(f"the update is not compiled, the training goes on without that: {error}")
            return self._take(batch, turn)
        by_name = dict(zip(self._names[turn], found, strict=True))
        named = {name: by_name.pop(name, None) for name in ("priority", "carry", "valid")}
        return UpdateResult(ids=batch.ids, anchor=batch.anchor, metrics=by_name, **named)  # type: ignore[arg-type]

    def _taken(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Take an update from the tensors of a batch; return those of its result."""
        obs = dict(zip(self._obs, inputs, strict=False))
        names = [name for name in SequenceBatch.__dataclass_fields__ if name != "obs"]
        batch = SequenceBatch(obs=obs, **dict(zip(names, inputs[len(obs) :], strict=True)))
        result = self._take(batch, self._turn)
        named = {"priority": result.priority, "carry": result.carry, "valid": result.valid}
        every = {name: x for name, x in {**named, **result.metrics}.items() if x is not None}
        self._names[self._turn] = list(every)
        return list(every.values())


def reason_against(
    config: SacConfig,
    device: torch.device,
    *,
    extensions: Sequence[object],
    max_step: float,
    images: bool = False,
) -> str | None:
    """Return why updates are not compiled; None: they are.

    max_step: environment steps of the training; negative: it has no end
    images:   some are observed; convolutions are no faster so
    """
    planned = planned_updates(config, max_step)
    falls = config.learning_rate_schedule != "constant"
    compilers = [environ.get("CXX"), "g++", "clang++", "c++", "cl"]
    found = any(shutil.which(one) for one in compilers if one)
    reasons = (
        (config.compile == "off", "it is off"),
        (config.compile == "auto" and planned < WORTH, f"{planned:,.0f} updates are too few for it"),
        (config.compile == "auto" and images, "convolutions are no faster then"),
        (bool(extensions), f"{', '.join(type(one).__name__ for one in extensions)} is not compiled"),
        (config.ensemble_q_sample < config.ensemble_q_num, "ensemble_q_sample draws critics for each update"),
        (falls and config.weight_decay > 0.0, "weight_decay changes with learning_rate_schedule"),
        (
            config.value_head == "quantile" and config.reward_scaling,
            "quantiles of scaled rewards are not compiled",
        ),
        (device.type == "cpu" and not found, "there is no C++ compiler (apt install g++)"),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _ignore(_: str) -> None: ...
