"""Texts of different lengths side by side, without padding: whole texts up to a budget of tokens, sorted by length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One text as the model reads it. row: its place in the caller's order."""

    row: int
    ids: Ints
    types: Ints | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """One forward pass: n texts, t tokens."""

    rows: npt.NDArray[np.intp]
    """(n,): where each text's result belongs."""
    ids: Ints
    """(t,)"""
    positions: Ints
    """(t,): from 0 in every text."""
    types: Ints | None
    """(t,), or None where all are 0."""
    bounds: Ints
    """(n + 1,): text i is tokens bounds[i] to bounds[i + 1]."""

    @property
    def tokens(self) -> int:
        """How many tokens."""
        return int(self.bounds[-1])

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return int(np.diff(self.bounds).max())

    def groups(self) -> list[tuple[int, int, int]]:
        """(first token, number of texts, length) of each run of texts of equal length."""
        lengths = np.diff(self.bounds).tolist()
        groups, start = [], 0
        for length, run in groupby(lengths):
            count = len(list(run))
            groups.append((start, count, length))
            start += count * length
        return groups


def pack(texts: Sequence[Encoded]) -> Pack:
    """One pack of these texts, in this order."""
    lengths = np.array([len(text.ids) for text in texts], dtype=np.int32)
    bounds = np.zeros(len(texts) + 1, dtype=np.int32)
    np.cumsum(lengths, out=bounds[1:])
    positions = np.arange(bounds[-1], dtype=np.int32) - np.repeat(bounds[:-1], lengths)
    typed = [text.types for text in texts if text.types is not None]
    return Pack(
        rows=np.array([text.row for text in texts], dtype=np.intp),
        ids=np.concatenate([text.ids for text in texts]),
        positions=positions,
        types=np.concatenate(typed) if typed else None,
        bounds=bounds,
    )


def packs(slices: Iterable[Sequence[Encoded]], budget: int) -> Iterator[Pack]:
    """Packs of at most `budget` tokens (a longer text is alone in one), filled across slices, longest first in each.

    What is left of a slice goes with the next one, so that only the last pack is small.
    """
    waiting: list[Encoded] = []
    for texts in slices:
        waiting = sorted([*waiting, *texts], key=lambda text: -len(text.ids))
        while (count := _fitting(waiting, budget)) < len(waiting):
            yield pack(waiting[:count])
            waiting = waiting[count:]
    if waiting:
        yield pack(waiting)


def _fitting(texts: Sequence[Encoded], budget: int) -> int:
    """How many of the first texts fill the budget; at least one."""
    total = 0
    for count, text in enumerate(texts):
        total += len(text.ids)
        if total > budget and count:
            return count
    return len(texts)


def slices(sizes: Sequence[int], first: int, most: int) -> Iterator[list[int]]:
    """Row numbers of what is tokenised together, the largest first: `first` of them, then twice as many each time,
    up to `most`. So what computes has little to wait for at the beginning, and later calls are few."""
    order = sorted(range(len(sizes)), key=lambda row: -sizes[row])
    start, count = 0, first
    while start < len(order):
        yield order[start : start + count]
        start, count = start + count, min(2 * count, most)
