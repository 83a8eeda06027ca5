"""Networks for acting, and ours in numpy, which acts sooner than torch where there are few rows.

A form does with arrays what a module's ``forward`` does with tensors in evaluation mode. It holds the
module's tensors as arrays in the same memory, so what is written into a parameter counts. Attributes and
modules are those of the moment when it was made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from algorithm.core.spec import BYTES
from algorithm.nn.critic_only import BlindPolicy, CriticRep
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.encode import Flat, OneHot, VectorEncoder
from algorithm.nn.layers.inverted import InvertedBlock
from algorithm.nn.layers.mlp import ActionHead, ResidualBlock
from algorithm.nn.layers.noisy import NoisyLinear
from algorithm.nn.layers.norm import BatchNorm, RmsNorm
from algorithm.nn.layers.recurrent import GRU
from algorithm.nn.models.defaults import ModelPolicy, ModelQ, ModelRep, RecurrentRep
from algorithm.nn.models.tanh import TanhPolicy
from algorithm.nn.normalise import NoNormaliser, Normaliser
from algorithm.nn.protocols import HybridAction, Rep
from algorithm.ops.library import NUMPY


class ActingModel(nn.Module):
    """Normaliser, encoder and policy, with critics only where an action is chosen by them.

    All stand in evaluation mode.

    critics: an ensemble for each horizon of rewards, whose values are summed; none without them
    """

    def __init__(
        self,
        normaliser: Normaliser | NoNormaliser,
        rep: Rep,
        policy: nn.Module,
        critics: Sequence[Ensemble] = (),
    ) -> None:
        super().__init__()
        self.normaliser, self.rep = normaliser, rep
        if critics:
            self.q = critics[0]
        self.signal_q = nn.ModuleList(critics[1:])
        self.policy = policy
        self.eval()

    @property
    def critics(self) -> tuple[Ensemble, ...]:
        """All ensembles, that of the environment's reward first."""
        return (self.q, *cast(Iterable[Ensemble], self.signal_q)) if hasattr(self, "q") else ()


Numbers = NDArray[Any]
NumpyForm = Callable[..., Any]


class NoFormError(Exception):
    """Reason why something has no form: torch computes it."""


def form_of(module: nn.Module) -> Any:  # noqa: ANN401  # a form, or a list or namespace of forms
    """Return the form of a module whose type is exactly one of ours. Raises NoFormError for any other."""
    kind = type(module)
    if kind not in FORMS or "forward" in vars(module):
        raise NoFormError(f"{kind.__module__}.{kind.__qualname__} has no form in numpy")
    if module._forward_hooks or module._forward_pre_hooks:
        raise NoFormError("a module has hooks")
    return FORMS[kind](module)


def is_ours(module: nn.Module) -> bool:
    """Return whether the class of a network is not the user's own."""
    return type(module).__module__.partition(".")[0] in ("algorithm", "torch")


def network_form(module: nn.Module) -> Any:  # noqa: ANN401
    """Return the form of a network: torch for a class of the user's. Raises NoFormError as ``form_of``."""
    return form_of(module) if is_ours(module) else _by_torch(module)


def _by_torch(module: nn.Module) -> NumpyForm:
    @torch.inference_mode()
    def form(*inputs: Numbers | Mapping[str, Numbers]) -> Any:  # noqa: ANN401
        result = module(*map(_tensors, inputs))
        if isinstance(result, HybridAction):
            return result.map(lambda x: cast(Any, x.numpy()))
        return result.numpy() if isinstance(result, Tensor) else tuple(x.numpy() for x in result)

    return form


def _tensors(x: Numbers | Mapping[str, Numbers]) -> Any:  # noqa: ANN401  # a tensor, or some by name
    if isinstance(x, np.ndarray):
        return torch.from_numpy(x if x.flags.writeable else x.copy())
    return {name: _tensors(value) for name, value in x.items()}


def with_arrays(module: nn.Module, form: Callable[[nn.Module], Any] = form_of) -> Any:  # noqa: ANN401
    """Return a copy of a module that computes by numpy: its tensors are arrays, its modules are forms."""
    twin = copy.copy(module)
    vars(twin).update(lib=NUMPY, **{name: form(child) for name, child in module.named_children()})
    for tensors in (module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
        vars(twin).update({name: array_of(tensor) for name, tensor in tensors})
    return twin


def _forward(module: nn.Module) -> NumpyForm:
    """Return ``forward`` itself, of modules that compute with arrays as with tensors."""
    forward: NumpyForm = with_arrays(module).forward
    return forward


def array_of(tensor: Tensor | None) -> Numbers:
    """Return a tensor's numbers in the same memory. Raises NoFormError for another type than float32."""
    if tensor is None or tensor.dtype != torch.float32:
        raise NoFormError(f"a layer has {tensor if tensor is None else tensor.dtype}, not torch.float32")
    return tensor.detach().numpy()


def _sequential(layers: nn.Sequential) -> NumpyForm:
    forms = [form_of(layer) for layer in layers]

    def form(x: Numbers) -> Numbers:
        for step in forms:
            x = step(x)
        return x

    return form


def _linear(layer: nn.Linear) -> NumpyForm:
    weight, bias = array_of(layer.weight).T, 0 if layer.bias is None else array_of(layer.bias)
    return lambda x: x @ weight + bias


def _layer_norm(layer: nn.LayerNorm) -> NumpyForm:
    weight, bias = array_of(layer.weight), array_of(layer.bias)
    axes = tuple(range(-len(layer.normalized_shape), 0))

    def form(x: Numbers) -> Numbers:
        centred: Numbers = x - x.mean(axes, keepdims=True)
        centred /= np.sqrt(np.square(centred).mean(axes, keepdims=True) + layer.eps)
        return centred * weight + bias

    return form


def _batch_norm(layer: BatchNorm) -> NumpyForm:
    weight, bias, mean, var = map(array_of, (layer.weight, layer.bias, layer.mean, layer.var))

    def form(x: Numbers) -> Numbers:
        factor = weight * (1.0 / np.sqrt(var + layer.epsilon))
        return (bias - mean * factor) + x * factor

    return form


def _sigmoid(x: Numbers) -> Numbers:
    return 0.5 * np.tanh(0.5 * x) + 0.5


def _gru(gru: GRU) -> NumpyForm:
    layers = [[array_of(weight) for weight in layer.parameters()] for layer in gru.layers]

    def form(x: Numbers, carry: Numbers, valid: Numbers) -> tuple[Numbers, Numbers]:
        x, after = x[:, 0], []
        for (w_x, w_h, b_x, b_h), h in zip(layers, np.moveaxis(carry, 1, 0), strict=True):
            r_x, z_x, new_x = NUMPY.split(x @ w_x.T + b_x, [h.shape[-1]] * 3, -1)
            r_h, z_h, new_h = NUMPY.split(h @ w_h.T + b_h, [h.shape[-1]] * 3, -1)
            new = np.tanh(new_x + new_h * _sigmoid(r_h + r_x))
            x = (h - new) * _sigmoid(z_h + z_x) + new
            after.append(x)
        return x[:, None], np.stack(after, 1)[:, None]

    return form


def _flat(layer: Flat) -> NumpyForm:
    """Return a form that flattens the last ``rank`` axes, and scales pixels from low … high to 0 … 1."""
    rank, size = layer.rank, layer.out_size
    low, high = layer.span or BYTES

    def form(x: Numbers) -> Numbers:
        flat = x if rank == 1 else x.reshape(*x.shape[: x.ndim - rank], size)
        if x.dtype != np.uint8:
            return flat.astype(np.float32, copy=False)
        return (flat.astype(np.float32) - low) * (1.0 / (high - low))

    return form


def _one_hot(layer: OneHot) -> NumpyForm:
    element, value = layer.get_buffer("element").numpy(), layer.get_buffer("value").numpy()
    size = layer.num_elements
    return lambda x: NUMPY.floats(x.reshape(*x.shape[: x.ndim - layer.rank], size)[..., element] == value)


def _normaliser(normaliser: Normaliser) -> NumpyForm:
    kinds = {name: np.float64 if name in normaliser.wide else np.float32 for name in normaliser.names}
    views = {name: [moments.numpy() for moments in normaliser.of(name)] for name in normaliser.names}

    def form(obs: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        result = dict(obs)
        for name, (shift, scale) in views.items():
            deviation = (obs[name].astype(kinds[name]) - shift.astype(kinds[name])).astype(np.float32)
            result[name] = NUMPY.clip(deviation * scale, -normaliser.clip, normaliser.clip)
        return result

    return form


def _ensemble(ensemble: Ensemble) -> SimpleNamespace:
    forms = [network_form(member) for member in ensemble.members]
    return SimpleNamespace(frozen=lambda *inputs: np.array([form(*inputs) for form in forms]))


FORMS: Mapping[type[nn.Module], Callable[[Any], Any]] = {
    nn.Sequential: _sequential,
    nn.ModuleList: lambda modules: [form_of(module) for module in modules],
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.ReLU: lambda layer: lambda x: np.maximum(x, 0),
    nn.Tanh: lambda layer: np.tanh,
    nn.ELU: lambda layer: lambda x: np.where(x > 0, x, layer.alpha * np.expm1(np.minimum(x, 0))),
    nn.SiLU: lambda layer: lambda x: x * _sigmoid(x),
    BatchNorm: _batch_norm,
    GRU: _gru,
    Flat: _flat,
    OneHot: _one_hot,
    NoNormaliser: lambda layer: (
        lambda obs: {name: NUMPY.floats(x) if x.dtype == np.float64 else x for name, x in obs.items()}
    ),
    Normaliser: _normaliser,
    Ensemble: _ensemble,
    ActingModel: lambda layer: with_arrays(layer, network_form),
    **dict.fromkeys((NoisyLinear, RmsNorm, ResidualBlock, InvertedBlock, ActionHead), _forward),
    **dict.fromkeys((VectorEncoder, ModelRep, RecurrentRep, CriticRep, ModelQ), _forward),
    **dict.fromkeys((ModelPolicy, TanhPolicy, BlindPolicy), _forward),
}
"""Type of a module -> its form."""
