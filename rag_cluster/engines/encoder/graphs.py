"""CUDA graphs for small packs, where launching kernels takes longer than computing: one query in a millisecond.

A graph has fixed shapes, so that a pack is filled up to the next size with padding. Padding is a text of its own at
the end: attention never mixes it with the others, and its result is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from rag_cluster.engines.encoder.packing import Ints, Pack

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
    host: torch.Tensor
    """What `filled` writes; pinned."""
    device: torch.Tensor
    """The same where the graph reads it."""
    copied: torch.cuda.Event
    """After it the host's tensor may be written again."""
    result: torch.Tensor


def filled(pack: Pack, size: int, out: Ints) -> None:
    """Write ids (size,), positions (size,) and bounds (TEXTS + 2,) of a pack, one after the other, to `out`.

    Texts that are not there are empty, and the last one is the padding: tokens 0 at position 0, which every model has.
    """
    tokens, texts = pack.tokens, len(pack.rows)
    out[:] = 0
    out[:tokens] = pack.ids
    out[size : size + tokens] = pack.positions
    bounds = out[2 * size :]
    bounds[: texts + 1] = pack.bounds
    bounds[texts + 1 :] = tokens
    bounds[-1] = size


def parts(flat: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Views of ids, positions and bounds in what `filled` wrote."""
    return flat[:size], flat[size : 2 * size], flat[2 * size :]


def length(size: int) -> int:
    """Numbers that `filled` writes."""
    return 2 * size + TEXTS + 2


class Graphs:
    """Records a graph for each size when it is first needed, and replays it. Not for several threads at once."""

    def __init__(self, compute: Compute, device: torch.device) -> None:
        self._compute = compute
        self._device = device
        self._recorded: dict[int, _Recorded] = {}

    def fits(self, pack: Pack) -> bool:
        """Whether a pack is small enough."""
        return pack.types is None and pack.tokens <= TOKENS[-1] and len(pack.rows) <= TEXTS

    def run(self, pack: Pack) -> torch.Tensor:
        """(n, width) of a small pack, on the device; does not wait for it."""
        size = next(size for size in TOKENS if size >= pack.tokens)
        if size not in self._recorded:
            self._recorded[size] = self._record(size)
        recorded = self._recorded[size]
        recorded.copied.synchronize()
        filled(pack, size, recorded.host.numpy())
        recorded.device.copy_(recorded.host, non_blocking=True)
        recorded.copied.record()
        recorded.graph.replay()
        # The next replay writes to the same place.
        return recorded.result[: len(pack.rows)].clone()

    def _record(self, size: int) -> _Recorded:
        host = torch.zeros(length(size), dtype=torch.int32).pin_memory()
        host.numpy()[2 * size + 1 :] = size
        device = host.to(self._device)
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._compute(*parts(device, size), size)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # thread_local: another model of this process may be at work meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = self._compute(*parts(device, size), size)
        return _Recorded(graph, host, device, torch.cuda.Event(), result)
