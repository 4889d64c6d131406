"""Where the parts of a document lie, and what links stand in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rag_cluster.domain.blocks import BBox, SourceLocator
from rag_cluster.parsing.pdf.assembly import Part
from rag_cluster.parsing.pdf.geometry import overlap, union
from rag_cluster.parsing.pdf.links import Link
from rag_cluster.parsing.pdf.page import PlacedTable
from rag_cluster.parsing.pdf.paragraphs import Paragraph

_NEAR = 2.0
"""Points by which a link may miss its line."""


def locator(part: Part) -> SourceLocator:
    """Page and box; spans when it lies on several pages or in several columns."""
    if not isinstance(part, Paragraph):
        return SourceLocator(page=part.page, bbox=part.box, spans=part.spans if isinstance(part, PlacedTable) else ())
    groups: dict[tuple[int, int], list[BBox]] = {}
    for line, number in zip(part.lines, part.pages, strict=True):
        groups.setdefault((number, line.region), []).append(line.frame.leave(line.box))
    spans = tuple((number, union(boxes)) for (number, _), boxes in groups.items())
    return SourceLocator(page=spans[0][0], bbox=spans[0][1], spans=spans if len(spans) > 1 else ())


def links(parts: Sequence[Part], pages: Mapping[int, Sequence[Link]]) -> dict[int, list[dict[str, str]]]:
    """id of a part -> the links that stand in it: [{"text", "uri"}]. pages: 1-based number -> links, none empty."""
    out: dict[int, list[dict[str, str]]] = {}
    if not pages:
        return out
    places: dict[int, list[tuple[BBox, Part]]] = {}
    for part in parts:
        for number, box in _boxes(part):
            if number in pages:
                places.setdefault(number, []).append((box, part))
    for number, found in pages.items():
        for link in found:
            holder = _holder(places.get(number, ()), link.box)
            if holder is not None:
                out.setdefault(id(holder), []).append({"text": link.text, "uri": link.uri})
    return out


def _holder(places: Sequence[tuple[BBox, Part]], link: BBox) -> Part | None:
    """The part in which a link's middle lies; else, as a link may be far wider than its words, the one that shares
    most of its area with it."""
    middle = next((part for box, part in places if _holds(box, link)), None)
    if middle is not None:
        return middle
    shared = max(places, key=lambda place: overlap(place[0], link), default=None)
    return shared[1] if shared is not None and overlap(shared[0], link) > 0 else None


def _boxes(part: Part) -> Iterator[tuple[int, BBox]]:
    if isinstance(part, Paragraph):
        for line, number in zip(part.lines, part.pages, strict=True):
            yield number, line.frame.leave(line.box)
    elif isinstance(part, PlacedTable) and part.spans:
        yield from part.spans
    else:
        yield part.page, part.box


def _holds(box: BBox, link: BBox) -> bool:
    x, y = (link[0] + link[2]) / 2, (link[1] + link[3]) / 2
    return box[0] - _NEAR <= x <= box[2] + _NEAR and box[1] - _NEAR <= y <= box[3] + _NEAR
