"""Blocks -> sections: runs of blocks under one heading, on one sheet or slide, with the headings that lead to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rag_cluster.domain.blocks import Block, BlockType

Place = tuple[str | None, int | None]
"""(sheet, slide): a chunk or parent lies on one."""


@dataclass(slots=True)
class Section:
    """Blocks of one heading path. Without blocks: headings that nothing follows, under the path of their parent."""

    path: tuple[str, ...]
    place: Place
    headings: list[Block] = field(default_factory=list)
    """Heading blocks that stand directly before the blocks, outermost first."""
    blocks: list[Block] = field(default_factory=list)


def sections(blocks: Iterable[Block]) -> Iterator[Section]:
    """In reading order. A heading without text of its own joins what lies under it; headings of one level that
    nothing lies under make a section together."""
    bare: Section | None = None
    for section in _runs(blocks):
        if section.blocks:
            if bare:
                yield bare
                bare = None
            yield section
        elif bare and (bare.path, bare.place) == (section.path, section.place) and len(section.headings) == 1:
            bare.headings.extend(section.headings)
        else:
            if bare:
                yield bare
            bare = section
    if bare:
        yield bare


def _runs(blocks: Iterable[Block]) -> Iterator[Section]:
    waiting: list[Block] = []
    """A chain of headings, each under the one before it."""
    current: Section | None = None
    for block in blocks:
        path, place = block.locator.heading_path, (block.locator.sheet, block.locator.slide)
        heading = block.type is BlockType.HEADING
        if current and (heading or (current.path, current.place) != (path, place)):
            yield current
            current = None
        if waiting and not _under(path, waiting[-1], proper=heading):
            yield _bare(waiting)
            waiting = []
        if heading:
            waiting.append(block)
        elif current:
            current.blocks.append(block)
        else:
            current = Section(path, place, waiting, [block])
            waiting = []
    if current:
        yield current
    if waiting:
        yield _bare(waiting)


def _bare(headings: list[Block]) -> Section:
    last = headings[-1].locator
    return Section(last.heading_path[:-1], (last.sheet, last.slide), headings)


def _under(path: tuple[str, ...], heading: Block, *, proper: bool) -> bool:
    """Whether what has this path lies under the heading; another heading must lie deeper."""
    above = heading.locator.heading_path
    return path[: len(above)] == above and not (proper and len(path) <= len(above))
