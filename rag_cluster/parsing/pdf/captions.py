"""Captions: a paragraph "Figure 1 ..." or "Table 1 ..." next to its figure or table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rag_cluster.domain.blocks import BBox, BlockType
from rag_cluster.parsing.pdf.figures import Figure
from rag_cluster.parsing.pdf.geometry import union
from rag_cluster.parsing.pdf.headings import CAPTION
from rag_cluster.parsing.pdf.paragraphs import Paragraph

if TYPE_CHECKING:
    from rag_cluster.parsing.pdf.page import OcrText, PlacedTable

REACH = 60.0
"""Points between a caption and its figure."""


def attach(parts: Sequence[Paragraph | PlacedTable | Figure | OcrText]) -> None:
    """Write captions into figures and tables. The paragraph stays, marked, so that its own place can be cited."""
    for index, part in enumerate(parts):
        if not isinstance(part, Paragraph) or part.kind is not BlockType.TEXT or not CAPTION.match(part.text):
            continue
        target = _nearest(part, parts[max(index - 8, 0) : index + 9])
        if target is not None and not target.caption:
            target.caption = part.text
            part.metadata["caption"] = True


def _nearest(
    caption: Paragraph, around: Sequence[Paragraph | PlacedTable | Figure | OcrText]
) -> Figure | PlacedTable | None:
    box = union(line.frame.leave(line.box) for line in caption.lines)
    from rag_cluster.parsing.pdf.page import PlacedTable

    best: tuple[float, Figure | PlacedTable] | None = None
    of_table = caption.text[:1] in "表附" or caption.text.lower().startswith(("tab", "exhibit"))
    for part in around:
        if not isinstance(part, (Figure, PlacedTable)) or part.page != caption.pages[0]:
            continue
        if of_table == isinstance(part, Figure):
            continue
        distance = _distance(box, part.box)
        if distance < REACH and (best is None or distance < best[0]):
            best = (distance, part)
    return best[1] if best else None


def _distance(a: BBox, b: BBox) -> float:
    """Vertical gap between boxes that share some width, else infinity."""
    if min(a[2], b[2]) - max(a[0], b[0]) < 0.2 * min(a[2] - a[0], b[2] - b[0]):
        return float("inf")
    return max(a[1] - b[3], b[1] - a[3], 0.0)
