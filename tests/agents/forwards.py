"""Encoders whose ``forward`` does what a compiler cannot see, and a few that look as if they did.

``FORWARDS``: name -> ``make(spec)``, an encoder without memory of its own, 6 wide, with trained parameters.
"""

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from algorithm.core.spec import AgentSpec
from algorithm.nn import Rep, VectorEncoder

SIZE = 6


class Forward(Rep):
    """A linear layer, and ``body`` of a subclass behind it, [B, T, 6] -> [B, T, 6]."""

    def __init__(self, spec: AgentSpec) -> None:
        super().__init__(spec)
        self.encode = VectorEncoder(spec.obs)
        self.linear = nn.Linear(self.encode.out_size, SIZE)

    def body(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, obs, prev_action, carry, valid):
        return self.body(self.linear(self.encode(obs))), carry


class Plain(Forward):
    def body(self, x):
        return x.tanh()


class Branch(Forward):
    def body(self, x):
        return x.tanh() if x.mean() > 0 else 2.0 * x.sigmoid()


class PythonRandom(Forward):
    def body(self, x):
        return x.tanh() * (1.0 + random.random())


class Attribute(Forward):
    """A number that falls with every call."""

    def __init__(self, spec):
        super().__init__(spec)
        self.temperature = 2.0

    def body(self, x):
        self.temperature *= 0.999
        return (x / self.temperature).tanh()


class Dropout(Forward):
    """Always on, from torch's own generator."""

    def body(self, x):
        return functional.dropout(x.tanh(), 0.5, training=True)


class Gru(Forward):
    """A GRU over the features of each token."""

    def __init__(self, spec):
        super().__init__(spec)
        self.gru = nn.GRU(1, SIZE, batch_first=True)

    def body(self, x):
        out, _ = self.gru(x.reshape(-1, SIZE, 1))
        return out[:, -1].reshape(x.shape)


class Reassigned(Forward):
    """A buffer that every call replaces."""

    def __init__(self, spec):
        super().__init__(spec)
        self.register_buffer("scale", torch.ones(()))

    def body(self, x):
        self.scale = self.scale * 1.0002
        return (x * self.scale).tanh()


FORWARDS: dict[str, Callable[[AgentSpec], Rep]] = {
    "plain": Plain,
    "branch": Branch,
    "random": PythonRandom,
    "attribute": Attribute,
    "dropout": Dropout,
    "gru": Gru,
    "reassigned buffer": Reassigned,
}
"""Encoders by what their ``forward`` does."""
