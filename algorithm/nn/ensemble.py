"""Ensemble of E independent critics, evaluated together.

Parameters are stored stacked, [E, ...] per name, so a checkpoint does not depend on the back end. ``vmap``
evaluates all members in one batched call; ``loop`` calls them in turn. On a CPU the loop is faster below
five members: each member's matrix product is large enough to fill a core.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from typing_extensions import override

VMAP_FROM = 5
"""Number of members from which ``vmap`` is the default on a CPU; on a GPU it always is."""

Backend = Literal["loop", "vmap"]

Members = Sequence[int] | Tensor | None
"""Indices [M] of the members to run; None: all."""


class Ensemble(nn.Module):
    """Ensemble of E = n critics: ``Ensemble(make, n)(*inputs) -> [E, ...]``.

    make:     builds a member; called ``n`` times, so each has its own initial weights.
    backend:  ``loop`` or ``vmap``; None chooses by size and device.
    probe:    example inputs. A member that ``vmap`` cannot run (a GRU, data-dependent ``if``) then falls back
              to the loop.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        n: int,
        *,
        device: torch.device | None = None,
        backend: Backend | None = None,
        probe: Sequence[Tensor] | None = None,
    ) -> None:
        super().__init__()
        device = device or torch.device("cpu")
        members = [make().to(device) for _ in range(n)]
        params, buffers = stack_module_state(members)
        self.n = n
        self._names = {name: name.replace(".", "/") for name in (*params, *buffers)}  # "." is not allowed
        for name, value in params.items():
            self.register_parameter(self._names[name], nn.Parameter(value.detach().clone()))
        saved = members[0].state_dict().keys()
        for name, value in buffers.items():
            self.register_buffer(self._names[name], value.clone(), persistent=name in saved)
        # Lists in a tuple are invisible to nn.Module: members alias the stacked tensors and own nothing.
        self._members = (members, [copy.deepcopy(m).requires_grad_(False) for m in members])
        self._template = (copy.deepcopy(members[0]).to("meta"),)
        suits: Backend = "vmap" if device.type != "cpu" or n >= VMAP_FROM else "loop"
        self.backend = backend or suits
        self.realias()
        if self.backend == "vmap" and probe is not None:
            self._try_vmap(probe)

    def _try_vmap(self, probe: Sequence[Tensor]) -> None:
        with torch.no_grad():
            try:
                self._call_vmap(probe, self._stacked(frozen=True))
            except (RuntimeError, NotImplementedError, ValueError):
                self.backend = "loop"

    def realias(self) -> None:
        """Make the members' parameters views of the stacked tensors again, after these have moved."""
        for index in range(self.n):
            for members, frozen in zip(self._members, (False, True), strict=True):
                for name, p in members[index].named_parameters():
                    stacked = self.get_parameter(self._names[name])
                    p.data = stacked.data[index]
                    p.grad = None if frozen or stacked.grad is None else stacked.grad[index]
                for name, b in members[index].named_buffers():
                    b.data = self.get_buffer(self._names[name])[index]

    @property
    def members(self) -> list[nn.Module]:
        """The critics one by one; their tensors are views of the stacked ones."""
        return self._members[0]

    @property
    def copies(self) -> list[nn.Module]:
        """All modules that a call may run: members, their frozen copies, and the template of ``vmap``."""
        return [*self._members[0], *self._members[1], *self._template]

    @override
    def train(self, mode: bool = True) -> Ensemble:
        """Set the mode, also of the members, which ``nn.Module`` does not register."""
        for module in self.copies:
            module.train(mode)
        return super().train(mode)

    @override
    def forward(self, *inputs: Tensor, members: Members = None) -> Tensor:
        """Run all ``members``, or some, on the same inputs; return [E, ...] or [M, ...]."""
        return self._call(inputs, members, frozen=False)

    def frozen(self, *inputs: Tensor, members: Members = None) -> Tensor:
        """Run members with detached parameters, as :meth:`forward`: only inputs get a gradient."""
        return self._call(inputs, members, frozen=True)

    def _call(self, inputs: Sequence[Tensor], members: Members, *, frozen: bool) -> Tensor:
        drawn = isinstance(members, Tensor) and torch.compiler.is_compiling()  # a graph has no numbers of it
        if self.backend == "loop" and not drawn:
            modules = self._members[frozen]
            chosen = modules if members is None else [modules[i] for i in members]
            return torch.stack([module(*inputs) for module in chosen])
        stacked = self._stacked(frozen=frozen)
        if members is not None:
            index = torch.as_tensor(members, device=next(iter(stacked.values())).device)
            stacked = {name: value[index] for name, value in stacked.items()}
        return self._call_vmap(inputs, stacked)

    def _stacked(self, *, frozen: bool) -> dict[str, Tensor]:
        tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return {name: tensors[key].detach() if frozen else tensors[key] for name, key in self._names.items()}

    def _call_vmap(self, inputs: Sequence[Tensor], stacked: dict[str, Tensor]) -> Tensor:
        def run_member(state: dict[str, Tensor], *args: Tensor) -> Tensor:
            q: Tensor = functional_call(self._template[0], state, args)
            return q

        return vmap(run_member, in_dims=(0, *[None] * len(inputs)), randomness="different")(stacked, *inputs)
