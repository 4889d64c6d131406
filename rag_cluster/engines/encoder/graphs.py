"""CUDA graphs for small packs, where launching kernels takes longer than computing: one query in a millisecond.

A graph has fixed shapes, so that a pack is filled up to the next size with padding. Padding is a text of its own at
the end: attention never mixes it with the others, and its result is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

TOKENS = (16, 32, 64, 128, 256, 512)
"""Sizes of graphs."""
TEXTS = 16
"""Texts of one pack at most."""
_WARM_UPS = 3

Compute = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor]
"""(ids, positions, bounds, longest) -> (n, width)."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    ids: torch.Tensor
    positions: torch.Tensor
    bounds: torch.Tensor
    result: torch.Tensor


def filled(ids: torch.Tensor, bounds: torch.Tensor, size: int, texts: int) -> tuple[torch.Tensor, ...]:
    """(ids, positions, bounds) of a graph's shapes: (size,), (size,), (texts + 2,). All int32, on the CPU.

    Texts that are not there are empty; the last one is the padding. Positions of padding are 0, which every model has.
    """
    tokens = int(bounds[-1])
    all_ids = torch.zeros(size, dtype=torch.int32)
    all_ids[:tokens] = ids
    all_bounds = torch.full((texts + 2,), tokens, dtype=torch.int32)
    all_bounds[: len(bounds)] = bounds
    all_bounds[-1] = size
    positions = torch.zeros(size, dtype=torch.int32)
    lengths = bounds[1:] - bounds[:-1]
    positions[:tokens] = torch.arange(tokens, dtype=torch.int32) - bounds[:-1].repeat_interleave(lengths)
    return all_ids, positions, all_bounds


class Graphs:
    """Records a graph for each size when it is first needed, and replays it."""

    def __init__(self, compute: Compute, device: torch.device) -> None:
        self._compute = compute
        self._device = device
        self._recorded: dict[int, _Recorded] = {}

    def fits(self, ids: torch.Tensor, bounds: torch.Tensor, types: torch.Tensor | None) -> bool:
        """Whether such a pack is small enough."""
        return types is None and len(ids) <= TOKENS[-1] and len(bounds) - 1 <= TEXTS

    def run(self, ids: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        """(n, width) of a small pack. ids, bounds: int32, on the CPU."""
        size = next(size for size in TOKENS if size >= len(ids))
        if size not in self._recorded:
            self._recorded[size] = self._record(size)
        recorded = self._recorded[size]
        given = filled(ids, bounds, size, TEXTS)
        for place, part in zip((recorded.ids, recorded.positions, recorded.bounds), given, strict=True):
            # From pageable memory: the call returns when the bytes have been taken.
            place.copy_(part)
        recorded.graph.replay()
        # The next replay writes to the same place.
        return recorded.result[: len(bounds) - 1].clone()

    def _record(self, size: int) -> _Recorded:
        full = torch.zeros(size, dtype=torch.int32), torch.tensor([0, size], dtype=torch.int32)
        inputs = [part.to(self._device) for part in filled(*full, size, TEXTS)]
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._compute(inputs[0], inputs[1], inputs[2], size)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = self._compute(inputs[0], inputs[1], inputs[2], size)
        return _Recorded(graph, inputs[0], inputs[1], inputs[2], result)
