"""Attention inside each text of a pack. One function for each kind of machine, all of the same shape:

attend(qkv (t, 3, heads, d), bounds (n + 1,) int32, longest) -> (t, heads, d)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

Attend = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def unpadded(qkv: torch.Tensor, bounds: torch.Tensor, longest: int) -> torch.Tensor:
    """FlashAttention over cumulative lengths: CUDA from Ampere on, and 16-bit types."""
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = qkv.unbind(1)
    # By position: the arguments after these differ between torch 2.11 and 2.13, and their defaults are full attention.
    out: torch.Tensor = varlen_attn(q, k, v, bounds, bounds, longest, longest)
    return out


def grouped(groups: Sequence[tuple[int, int, int]]) -> Attend:
    """Texts of equal length as one batch: no padding and no mask, on any device and in any type.

    groups: (first token, number of texts, length) of each run.
    """

    def attend(qkv: torch.Tensor, bounds: torch.Tensor, longest: int) -> torch.Tensor:
        out = torch.empty_like(qkv[:, 0])
        for start, count, length in groups:
            part = slice(start, start + count * length)
            q, k, v = qkv[part].unflatten(0, (count, length)).permute(2, 0, 3, 1, 4)
            out[part] = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1)
        return out

    return attend


def one_by_one(qkv: torch.Tensor, bounds: torch.Tensor, longest: int) -> torch.Tensor:
    """The definition: every text alone. For tests."""
    out = torch.empty_like(qkv[:, 0])
    places = bounds.tolist()
    for start, end in itertools.pairwise(places):
        if end > start:
            q, k, v = (part.transpose(0, 1) for part in qkv[start:end].unbind(1))
            out[start:end] = F.scaled_dot_product_attention(q, k, v).transpose(0, 1)
    return out
