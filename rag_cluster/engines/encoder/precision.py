"""Linear layers in 8 bits: twice the rate of a GPU's 16 bits, and vectors that are a little off."""

from __future__ import annotations

import torch
from torch import nn

from rag_cluster.engines.encoder.model import Encoder, Layer

_LARGEST = 448.0
"""Of float8_e4m3fn."""
_SMALLEST_SCALE = 1e-12


class Float8Linear(nn.Module):
    """(t, in) bfloat16 -> (t, out) bfloat16; weights and input in float8 with a scale for each row, sums in float32.

    Needs in and out that are multiples of 16, and a GPU from Ada or Hopper on.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scale = rounded(linear.weight)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale.t().contiguous())
        self.register_buffer("bias", linear.bias.to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output."""
        small, scale = rounded(x)
        out: torch.Tensor = torch._scaled_mm(
            small,
            self.weight.t(),
            scale_a=scale,
            scale_b=self.scale,
            bias=self.bias,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
        return out


def rounded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(float8 (n, k), float32 scales (n, 1)) of a matrix: x is about their product."""
    wide = x.float()
    scale = wide.abs().amax(dim=1, keepdim=True).clamp(min=_SMALLEST_SCALE) / _LARGEST
    return (wide / scale).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn), scale


def to_float8(encoder: Encoder) -> None:
    """Replace the four linear layers of each layer, in place. After the encoder was moved to its device."""
    for layer in encoder.layers:
        assert isinstance(layer, Layer)
        for name in ("qkv", "output", "up", "down"):
            setattr(layer, name, Float8Linear(getattr(layer, name)))
