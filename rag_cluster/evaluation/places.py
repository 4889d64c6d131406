"""Whether a result lies where a question expects its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.locators import parse_range
from rag_cluster.domain.retrieval import RetrievalResult


def matches(expected: Mapping[str, Any], result: RetrievalResult) -> bool:
    """Whether one of the matched chunks holds every expected fact: page, slide, sheet, cell (A1), heading."""
    locators = [chunk.locator for chunk in result.matches] or [result.locator]
    return any(_holds(expected, locator) for locator in locators)


def _holds(expected: Mapping[str, Any], locator: SourceLocator) -> bool:
    return all(_fact(name, value, locator) for name, value in expected.items())


def _fact(name: str, value: Any, locator: SourceLocator) -> bool:
    if name == "page":
        return value in {page for page, _ in locator.spans} | {locator.page}
    if name == "heading":
        return any(str(value).casefold() in heading.casefold() for heading in locator.heading_path)
    if name == "cell":
        cell, area = parse_range(str(value)), parse_range(locator.cell_range or "")
        return bool(cell and area) and _inside(cell, area)
    return name in ("slide", "sheet") and getattr(locator, name) == value


def _inside(cell: Any, area: Any) -> bool:
    top, left, bottom, right = area
    return bool(top <= cell[0] and cell[2] <= bottom and left <= cell[1] and cell[3] <= right)
