"""A policy as an ONNX graph: from ML-Agents' inputs to observations as in training, and to actions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.actions.choice import ActionChoice
from algorithm.core.errors import UsageError, described
from algorithm.core.spec import AgentSpec
from algorithm.core.system.output import silence
from algorithm.extras.onnx.errors import ExportError, required
from algorithm.extras.onnx.lint import simplified
from algorithm.extras.onnx.names import from_unit, ports_of
from algorithm.extras.onnx.rewrites import AttentionSteps, rewritten, rewritten_parts
from algorithm.nn.acting import ActingModel
from algorithm.nn.layers.attention import Attention
from algorithm.nn.layers.images import ImageLayout, image_layouts
from algorithm.nn.normalise import Normaliser

if TYPE_CHECKING:
    from onnx import ModelProto

LARGEST_WINDOW = 4096
"""Most numbers of an attention window: each step has them as input and output, twice."""

_EXAMPLES = 2
"""Rows of the traced inputs. With 1, the exporter could take the batch for a broadcast dimension."""


class PolicyGraph(nn.Module):
    """Module from a graph's inputs to its outputs, see :func:`~algorithm.extras.onnx.names.ports_of`.

    Its memory is double: as if all earlier actions had been samples, and as if all had been modes. So both
    outputs are right if the environment always takes the same one.

    choice: how the policy acts without exploration
    """

    def __init__(self, choice: ActionChoice, spec: AgentSpec) -> None:
        super().__init__()
        self.model = cast(ActingModel, rewritten(choice.model))
        self._choice = replace(choice, model=self.model, parts=rewritten_parts(choice.parts))
        self._action = spec.action
        self._carry_shape = choice.model.rep.carry_shape
        self._carry_size = prod(self._carry_shape)
        normaliser, self.wide = self.model.normaliser, dict[str, str]()
        if isinstance(normaliser, Normaliser):
            self.wide = normaliser.beyond_float32()
            normaliser.narrow(self.wide)
        self.ports = ports_of(spec, memory_size(choice, spec), self.wide)
        layouts = image_layouts(spec.obs)
        self._observed = [
            _Observer(
                name,
                shape,
                "float32" if dtype == "float64" and name not in self.wide else dtype,
                layouts.get(name),
            )
            for name, shape, dtype in spec.obs.items()
        ]
        for port in self.ports.outputs:
            if not port.batched:
                self.register_buffer(port.name, torch.tensor(port.values).float().view(port.shape))
        self.register_buffer("initial_carry", choice.model.rep.initial_carry(1).detach().clone())

    @override
    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs for the inputs, both in the order of the ports."""
        feeds = {port.name: value for port, value in zip(self.ports.inputs, inputs, strict=True)}
        n = len(self._observed)
        obs = {convert.name: convert(x) for convert, x in zip(self._observed, inputs[:n], strict=True)}
        # [B, 1], to expand tensors to the size of the batch
        lead = inputs[0].reshape(inputs[0].shape[0], -1)[:, :1].float()
        mask = feeds["action_masks"] > 0.5 if "action_masks" in feeds else lead[:, :0] > 0.5
        remembered = list(self._remembered(feeds.get("recurrent_in"), lead))
        encoded = [self._choice.encode(obs, prev_action, carry) for carry, prev_action in remembered]

        def action(memory: int, *, sampled: bool) -> tuple[Tensor, Tensor]:
            seen, state, _ = encoded[memory]
            policy = self.model.policy(state, seen)
            mean, logits = policy.continuous and policy.continuous.mean, policy.logits
            normal = torch.randn_like(mean) if sampled and mean is not None else None
            uniform = torch.rand_like(logits) if sampled and logits is not None else None
            drawn = self._choice.draw(policy, state, mask, normal, uniform)
            u = drawn.z.tanh() if self._action.squash == "tanh" else drawn.z.clamp(-1.0, 1.0)
            return drawn.onehot, u

        mode = action(-1, sampled=False)
        # Critics choose the same for sample and mode, unless there is a continuous part.
        alike = self._choice.parts.discrete.asks_critics and not self._action.continuous
        first = mode if alike else action(0, sampled=True)
        return self._outputs(first, mode, [after for _, _, after in encoded])

    def _outputs(
        self, first: tuple[Tensor, Tensor], mode: tuple[Tensor, Tensor], carries: list[list[Tensor]]
    ) -> tuple[Tensor, ...]:
        """Return the outputs in the order of the ports; first, mode: one-hots and u of the actions."""
        outputs = {
            "continuous_actions": first[1],
            "deterministic_continuous_actions": mode[1],
            "discrete_actions": self._indices(first[0]),
            "deterministic_discrete_actions": self._indices(mode[0]),
        }
        if self.ports.memory:
            memory = []
            for after, (onehot, u) in zip(carries, (first, mode), strict=True):
                initial = self.get_buffer("initial_carry")
                memory += [(carry - initial).reshape(-1, self._carry_size) for carry in after]
                memory += [onehot] * bool(self._action.branches) + [u] * bool(self._action.continuous)
            outputs["recurrent_out"] = torch.cat(memory, -1).unsqueeze(1)
        return tuple(
            outputs[port.name] if port.batched else self.get_buffer(port.name) for port in self.ports.outputs
        )

    def _remembered(self, memory: Tensor | None, lead: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield carry [B, *C] and previous action [B, A] for samples, then for modes; once without memory.

        memory: [B, 1, M] the graph's input, both halves side by side; None: carry and action are zeros
        lead:   [B, 1] of any input, for the size of the batch
        """
        if memory is None:
            yield lead[:, :0], lead.new_zeros(1, self._action.size) * lead
            return
        size = self._carry_size + self._action.size
        for flat in (memory[:, 0, :size], memory[:, 0, size:]):
            if not self._carry_size:
                yield flat[:, :0], flat
                continue
            carry = flat[:, : self._carry_size].reshape(-1, *self._carry_shape)
            yield carry + self.get_buffer("initial_carry"), flat[:, self._carry_size :]

    def _indices(self, onehot: Tensor) -> Tensor:
        """Return the choices [B, branches] of one-hots [B, ΣN]."""
        if not self._action.branches:
            return onehot
        return torch.cat(
            [onehot[:, where].argmax(-1, keepdim=True) for where in self._action.branch_slices], -1
        )


class _Observer:
    """Conversion of an input to the observation that networks take: its type, and the axes of an image."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str, layout: ImageLayout | None) -> None:
        self.name, self._shape, self._layout = name, shape, layout
        self._dtype, self._from_unit = getattr(torch, dtype), from_unit(dtype, layout)

    def __call__(self, x: Tensor) -> Tensor:
        if self._layout is not None:
            if self._from_unit:
                x = (x * 255.0 + 0.5).floor()  # Barracuda's Cast does nothing, so it would not cut off
            x = self._layout.restore(x.permute(0, 2, 3, 1), (x.shape[0],))
        elif not self._shape:
            x = x[:, 0]
        return x > 0.5 if self._dtype == torch.bool else x.to(self._dtype)


def memory_size(choice: ActionChoice, spec: AgentSpec) -> int:
    """Return how many numbers the memory has: twice those of carry and previous action, 0 without memory.

    Raises UsageError where attention's window is larger than :data:`LARGEST_WINDOW`.
    """
    size = prod(choice.model.rep.carry_shape)
    if size > LARGEST_WINDOW and any(isinstance(layer, Attention) for layer in choice.model.rep.modules()):
        raise UsageError(
            f"the memory has {size:,} numbers",
            where="sac_config.burn_in_step, nn_config.rep.attn_n and attn_depth",
            why="attention keeps its whole window, which is input and output of each step; at most "
            f"{LARGEST_WINDOW:,} numbers",
            fix="train with a smaller burn_in_step or attn_n, or with seq_encoder: RNN",
        )
    if size or _uses_action(choice, spec):
        return 2 * (size + spec.action.size)
    return 0


def _uses_action(choice: ActionChoice, spec: AgentSpec) -> bool:
    """Return whether the state of a network without memory depends on the previous action."""
    obs = {name: torch.from_numpy(value) for name, value in spec.obs.zeros(1).items()}
    action = torch.zeros(1, spec.action.size, requires_grad=True)
    with torch.enable_grad():
        _, state, _ = choice.encode(obs, action, choice.model.rep.initial_carry(1))
        if not state.requires_grad:
            return False
        (gradient,) = torch.autograd.grad(state.sum(), [action], allow_unused=True)
    return gradient is not None


def draw_graph(graph: PolicyGraph, opset: int) -> ModelProto:
    """Return the graph as torch's TorchScript exporter writes it, without the exporter's output.

    The newer exporter is not used: it writes operators that Unity does not have and renames inputs.
    Raises UsageError without ``onnx`` and for attention at opset 9, ExportError if the exporter fails.
    """
    onnx = required("onnx")
    if opset <= 9 and any(isinstance(layer, AttentionSteps) for layer in graph.modules()):
        raise UsageError(
            "attention cannot be exported for Barracuda",
            where=f"export_config.opset: {opset}",
            why="it needs operators that this operator set does not have",
            fix="-o export_config.opset=15, for Sentis",
        )
    ports = graph.ports
    inputs = tuple(
        torch.zeros(_EXAMPLES, *port.shape, dtype=getattr(torch, port.dtype)) for port in ports.inputs
    )
    names = [port.name for port in (*ports.inputs, *ports.outputs) if port.batched]
    try:
        with silence(), warnings.catch_warnings(), TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            file = Path(folder) / "policy.onnx"
            torch.onnx.export(
                graph.eval(),
                inputs,
                file,
                dynamo=False,
                opset_version=opset,
                input_names=[port.name for port in ports.inputs],
                output_names=[port.name for port in ports.outputs],
                dynamic_axes={name: {0: "batch"} for name in names},
            )
            model: ModelProto = onnx.load(file)
    except Exception as error:  # of the networks' own code, or of the exporter
        raise ExportError(
            "the policy cannot be written as a graph",
            where=f"opset {opset}{_failed_module(str(error))}",
            why=described(error).partition("\n")[0].partition("  [Caused")[0],
            fix="write that part of nn.py with plain operations on tensors",
        ) from error
    return simplified(model)


def _failed_module(error: str) -> str:
    """Return the last module that the exporter's error names, for a message; empty if it names none."""
    scope = re.search(r"scope: (\S+)", error)
    names = [name.rpartition("::")[2] for name in scope[1].split("/")] if scope else []
    return f", after module {'/'.join(filter(None, names))}" if any(names) else ""
