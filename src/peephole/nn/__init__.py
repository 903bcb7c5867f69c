"""The peephole LSTM in PyTorch: the plain loop that defines it, fused CPU kernels, and the layer."""

from peephole.nn import functional, missing
from peephole.nn.lstm import PeepholeLSTM

__all__ = ["PeepholeLSTM", "functional", "missing"]
