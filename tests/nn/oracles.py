"""The networks of ``algorithm.nn`` out of torch's own layers."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from algorithm.nn.layers.inverted import InvertedBlock
from algorithm.nn.layers.norm import EPSILON, MOMENTUM, BatchNorm, RmsNorm


class PlainNet(nn.Module):
    """The same network out of torch's own layers, with the batch norms in training mode."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(plain_layer, net))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x) if isinstance(layer, PlainNet) else layer(x)
        return x


class BiasedBatchNorm(nn.BatchNorm1d):
    """Torch's batch norm, whose running variance is that of the batches as they were divided by."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                before = self.running_var.clone()
                super().forward(x.detach())
                self.running_var.copy_(before.lerp(x.detach().var(0, correction=0), self.momentum))
            return F.batch_norm(x, None, None, self.weight, self.bias, True, eps=self.eps)
        return super().forward(x)


def plain_layer(layer: nn.Module) -> nn.Module:
    """A copy of a layer, by torch; a block is the network whose output it adds to its input."""
    layer = copy.deepcopy(layer)
    if isinstance(layer, InvertedBlock):
        return PlainNet(layer.net)
    if isinstance(layer, RmsNorm):
        norm = nn.RMSNorm(layer.weight.shape, eps=1e-6)
        norm.weight = layer.weight
        return norm
    if not isinstance(layer, BatchNorm):
        return layer
    norm = BiasedBatchNorm(len(layer.weight), eps=EPSILON, momentum=MOMENTUM)
    norm.weight, norm.running_mean, norm.running_var = layer.weight, layer.mean, layer.var
    if isinstance(layer.bias, nn.Parameter):
        norm.bias = layer.bias
    else:
        norm.bias.requires_grad_(False)
    return norm
