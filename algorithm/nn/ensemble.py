"""Ensemble of E independent critics, evaluated together, also over current and next actions at once.

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

from algorithm.nn.layers.norm import BatchStatistics

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


StateActions = tuple[Tensor, Tensor]
"""States [P, S] and continuous actions [P, A_c]."""


class NormPass:
    """Joint pass of critics over current and next actions, normalised together (CrossQ, arXiv 1902.05605).

    Stored and next actions are two distributions, and a batch norm with the statistics of one would fit the
    other badly. The next actions contribute a gradient through the statistics alone. With target networks
    their outputs are those of the targets, on the same rows and by the targets' own statistics (XQC, arXiv
    2509.25174).
    """

    def __init__(self, q: Ensemble, target_q: Ensemble, *, own_target: bool, all_rows_exist: bool) -> None:
        self._q, self._target_q, self._all_rows_exist = q, target_q, all_rows_exist
        self._statistics = BatchStatistics(q.members, q.copies)
        self._target = BatchStatistics((), target_q.copies) if own_target else None

    def __call__(
        self, now: StateActions, then: StateActions, exist: tuple[Tensor, Tensor], members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs [E, P, N·D] of ``now``, with gradient, and [M, P', N·D] of ``then``, without.

        exist:   rows of both that exist, [P] and [P'] bool
        members: the drawn target critics; None: all
        """
        state, action = (torch.cat(pair) for pair in zip(now, then, strict=True))
        share = None if self._all_rows_exist else halves(*exist)
        size = len(now[0])
        with self._statistics.of_batch(share):
            out = self._q(state, action)
        if self._target is None:
            following = out[:, size:].detach()
            return out[:, :size], following if members is None else following[members]
        with torch.no_grad(), self._target.of_batch(share):
            following = self._target_q.frozen(state.detach(), action, members=members)[:, size:]
        return out[:, :size], following

    def past_warm_up(self) -> bool:
        """Set, before an update, whether batch norms may be past their warm-up; return it."""
        ready = self._statistics.past_warm_up()
        if self._target is not None:  # the targets' warm-up is a copy of the critics'
            self._target.norm_ready = ready
        return ready

    def commit(self, usable: Tensor) -> None:
        """Move the running statistics; see :meth:`.BatchStatistics.commit`."""
        self._statistics.commit(usable)


def halves(now_valid: Tensor, then_valid: Tensor) -> Tensor:
    """Return the share of each row in the statistics [P + P']: half for each kind, 0 for missing rows."""
    shares = [valid.float() / valid.sum().clamp(min=1.0) for valid in (now_valid, then_valid)]
    return torch.cat(shares) / 2.0
