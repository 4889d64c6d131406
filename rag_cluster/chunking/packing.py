"""Filling chunks and parents evenly: as few as a greedy fill makes, of about the same size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from rag_cluster.chunking.pieces import Piece, cost

T = TypeVar("T")


def pack_pieces(groups: Sequence[Sequence[Piece]], budget: int) -> list[list[Piece]]:
    """Consecutive pieces per chunk, none over the budget but a single piece that is.

    A group that fits is not cut, nor, of one that does not, a line that does: in many texts a line is a paragraph.
    """
    units: list[Sequence[Piece]] = []
    for group in groups:
        for unit in [group] if cost(group) <= budget else _lines(group):
            units.extend([unit] if cost(unit) <= budget else [[piece] for piece in unit])
    packed = pack(units, lambda unit, before: cost(unit, before[-1].key if before else None), budget)
    return [[piece for unit in units for piece in unit] for units in packed]


def _lines(group: Sequence[Piece]) -> list[list[Piece]]:
    lines: list[list[Piece]] = []
    for piece in group:
        if not lines or _ends_line(lines[-1][-1].text):
            lines.append([])
        lines[-1].append(piece)
    return lines


def _ends_line(text: str) -> bool:
    return "\n" in text[len(text.rstrip()) :]


def pack(items: Sequence[T], added: Callable[[T, T | None], int], budget: int) -> list[list[T]]:
    """Consecutive items per bin, none over the budget but a single item that is.

    added(item, before): what an item adds to a bin in which it follows `before` (None: it begins the bin).
    """
    greedy, sizes = _fill(items, added, budget, math.inf)
    if len(greedy) <= 1:
        return greedy
    even, _ = _fill(items, added, budget, sum(sizes) / len(sizes))
    return even if len(even) == len(greedy) else greedy


def _fill(
    items: Sequence[T], added: Callable[[T, T | None], int], budget: int, target: float
) -> tuple[list[list[T]], list[int]]:
    """Fill bins up to the budget, or until the next item would pass the target by more than half of itself."""
    bins: list[list[T]] = []
    sizes: list[int] = []
    for item in items:
        size = added(item, bins[-1][-1]) if bins else 0
        if not bins or (sizes[-1] and (sizes[-1] + size > budget or sizes[-1] + size / 2 > target)):
            bins.append([])
            sizes.append(0)
            size = added(item, None)
        bins[-1].append(item)
        sizes[-1] += size
    return bins, sizes
