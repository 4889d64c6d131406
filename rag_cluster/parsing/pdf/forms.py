"""Form fields: what was filled in, where the page's own text does not show it already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rag_cluster.parsing.pdf.geometry import PageSpace
from rag_cluster.parsing.pdf.lines import Line
from rag_cluster.parsing.pdf.text import Word


def values(pdf: Any, page: Any, space: PageSpace, words: Sequence[Word], region: int) -> list[Line]:
    """Lines of field values on an open page."""
    return []
