"""The base class of every family's learner: its state in a checkpoint, and how it is restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.roles import Tensors
from algorithm.core.data import StepBatch
from algorithm.core.seeding import restore_generator
from algorithm.nn.learning.optimiser import FlatOptimiser, without_prefix
from algorithm.nn.return_scale import NoReturnScale, ReturnScale


class Learner:
    """Networks, their optimisers and the random numbers of their updates.

    A family adds ``update(batch)``, which counts in ``updates``. Its optimisers add 1 to the tensor
    ``_skipped`` for each step that they skip.

    seed: of all random numbers drawn in updates
    networks: module of all networks; a family with several modules may override :meth:`modules` instead
    return_scale: scale of rewards; no scaling unless a family sets one
    """

    return_scale: ReturnScale | NoReturnScale
    PARTS: ClassVar[dict[str, tuple[str, ...]]] = {
        **{name: (f"model.{name}.",) for name in ("normaliser", "rep", "policy")},
        "extensions": ("extensions.",),
    }
    """Parts that ``--init_from`` can take from another run -> prefixes of their names in a checkpoint."""

    def __init__(self, device: torch.device, seed: int, networks: nn.Module | None = None) -> None:
        self._networks = networks
        self.device = device
        self.updates = 0
        self.return_scale = NoReturnScale()
        self._skipped = torch.zeros((), device=device)
        self._generator = torch.Generator(device).manual_seed(seed)

    @override
    def __repr__(self) -> str:
        size = sum(value.numel() for value in self.modules().parameters())
        return f"{type(self).__name__}(updates={self.updates:,}, parameters={size:,}, {self.device})"

    def modules(self) -> nn.Module:
        """Return one module that holds all networks, under the names that they have in a checkpoint."""
        assert self._networks is not None, "the family passes them, or overrides this"
        return self._networks

    def optimisers(self) -> Mapping[str, FlatOptimiser]:
        """Return the optimisers, with the names that they have in a checkpoint."""
        return {}

    def generators(self) -> Mapping[str, torch.Generator]:
        """Return the generators of random numbers, with the names that they have in a checkpoint."""
        return {"update": self._generator}

    @property
    def skipped(self) -> int:
        """Steps of all optimisers that were skipped since this learner was made. Waits for the device."""
        return int(self._skipped)

    def observe(self, new: StepBatch) -> None:
        """Add newly stored transitions to the running statistics."""
        self.return_scale.observe(new)

    def close(self, stream: int) -> None:
        """End an agent's unfinished episode in the running statistics."""
        self.return_scale.close(stream)

    def scale_learning_rate(self, factor: float) -> None:
        """Scale the learning rate of every optimiser by ``factor``, from the next step on."""
        for optimiser in self.optimisers().values():
            optimiser.factor = factor

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all tensors by file of a checkpoint: ``model``, all networks, and ``optim``, the rest.

        Only the number ``updates`` is saved apart.
        """
        optim: dict[str, Tensor] = {}
        for name, optimiser in self.optimisers().items():
            optim |= {f"{name}.{k}": v for k, v in optimiser.tensors().items()}
        optim |= {f"random.{name}": generator.get_state() for name, generator in self.generators().items()}
        optim |= {f"returns.{k}": v for k, v in self.return_scale.tensors().items()}
        return {"model": self.modules().state_dict(), "optim": optim}

    def trained(self) -> frozenset[str]:
        """Return the names in ``model`` of trained parameters: no targets, statistics, fixed networks."""
        named = self.modules().named_parameters(remove_duplicate=False)
        return frozenset(name for name, parameter in named if parameter.requires_grad)

    def load_tensors(self, tensors: Tensors, updates: int) -> bool:
        """Load the result of :meth:`tensors`. Raises ValueError if networks differ in name or shape.

        Returns whether random numbers continue too; saved by another kind of device, they begin anew.
        """
        self.roll_back(tensors)
        optim = tensors["optim"]
        self.return_scale.load_tensors(without_prefix("returns.", optim))
        self.updates = updates
        restored = [restore_generator(g, optim[f"random.{name}"]) for name, g in self.generators().items()]
        return all(restored)

    def roll_back(self, tensors: Tensors) -> None:
        """Restore networks, statistics and optimisers from what :meth:`tensors` returned.

        Random numbers and the number of updates continue. Raises ValueError as :meth:`load_tensors`.
        """
        self.load_model(tensors["model"])
        self._load_moments(tensors["optim"])

    def load_model(self, model: Mapping[str, Tensor]) -> None:
        """Load the networks alone, for inference. Raises ValueError as :meth:`load_tensors`."""
        try:
            self.modules().load_state_dict(dict(model))
        except RuntimeError as error:
            raise ValueError(f"the saved networks do not fit the configured ones: {error}") from error

    def begin_with(self, model: Mapping[str, Tensor], optim: Mapping[str, Tensor] | None) -> None:
        """Begin with the networks ``model`` of :meth:`tensors`; optim: None to reset the optimisers."""
        self.load_model(model)
        for optimiser in self.optimisers().values():
            optimiser.reset()
        if optim is not None:
            self._load_moments(optim)

    def _load_moments(self, optim: Mapping[str, Tensor]) -> None:
        for name, optimiser in self.optimisers().items():
            optimiser.load_tensors(without_prefix(f"{name}.", optim))
        self.return_scale.roll_back(without_prefix("returns.", optim))
