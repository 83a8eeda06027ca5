"""Target number of actors: a named Ray actor, so that another command can change it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from algorithm.core.errors import UsageError

NAMESPACE = "sac"
_EVERY_S = 1.0


class TargetSize:
    """Ray actor that holds the target number of actors."""

    def __init__(self, number: int) -> None:
        self._number = number

    def get(self) -> int:
        """Return the number."""
        return self._number

    def set(self, number: int) -> int:
        """Set the number; return the one before."""
        before, self._number = self._number, number
        return before


class TargetSizeWatcher:
    """Target size of the training command.

    number: of actors, asked for every second.
    Raises UsageError if there is a target size for that run already.
    """

    def __init__(
        self, ray: ModuleType, label: str, name: str, number: int, say: Callable[[str], None]
    ) -> None:
        self._ray, self._label, self._name, self._say = ray, label, name, say
        self.number = number
        self._ref: Any = None
        self._next = 0.0
        self._make()

    def step(self, now: float) -> None:
        """Ask for the number, or read the answer, without waiting. now: seconds."""
        if self._ref is None:
            if now >= self._next:
                self._ref, self._next = self._actor.get.remote(), now + _EVERY_S
        elif self._ray.wait([self._ref], timeout=0)[0]:
            ref, self._ref = self._ref, None
            self._hear(ref)

    def close(self) -> None:
        """Remove the target size from Ray."""
        self._ray.kill(self._actor)

    def _hear(self, ref: Any) -> None:  # noqa: ANN401
        errors = self._ray.exceptions
        try:
            target = self._ray.get(ref)
        except errors.ActorUnavailableError:
            return
        except errors.RayActorError:  # its node died; the number is known here
            self._make()
            return
        if target != self.number:
            self._say(f"{target} actors from now on, {self.number} before")
            self.number = target

    def _make(self) -> None:
        options = self._ray.remote(TargetSize).options(
            name=target_size_name(self._label, self._name), num_cpus=0
        )
        try:
            self._actor = options.remote(self.number)
        except ValueError as error:
            raise UsageError(
                f"{self._label} is being trained under the name {self._name!r} on this cluster already",
                where="-n",
                why=str(error),
                fix="choose another name, or change that one's number of actors with --scale",
            ) from error


def target_size_name(label: str, name: str) -> str:
    """Return Ray's name for a run's target size."""
    return f"target_size/{label}/{name}"
