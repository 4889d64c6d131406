"""Tables without rules: rows whose pieces stand under each other in columns."""

from __future__ import annotations

from collections.abc import Sequence

from rag_cluster.parsing.pdf.lines import Segment
from rag_cluster.parsing.pdf.shapes import Shapes
from rag_cluster.parsing.pdf.tables import Table


def find_tables(lines: Sequence[list[Segment]], shapes: Shapes) -> list[list[Segment] | Table]:
    """The rows of one region, with runs of them that make a table replaced by it."""
    return list(lines)
