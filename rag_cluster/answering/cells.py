"""Which cells a quoted table row stands in: a chunk knows the cells of its whole table, a citation names the rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rag_cluster.domain.blocks import SourceLocator

TABLE_RULE = re.compile(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*")
_RANGE = re.compile(r"([A-Z]{1,3})(\d+):([A-Z]{1,3})(\d+)")


def rows_locator(locator: SourceLocator, chunk_text: str, rows: Sequence[str]) -> SourceLocator:
    """The locator with its cell range narrowed to `rows` (Markdown lines of the chunk's one table).

    Unchanged where rows and cells cannot be counted against each other: several tables, rows left out, no range.
    """
    cells = _RANGE.fullmatch(locator.cell_range or "")
    lines = [line.strip() for line in chunk_text.split("\n") if line.strip()]
    rules = [at for at, line in enumerate(lines) if TABLE_RULE.fullmatch(line)]
    if cells is None or len(rules) != 1:
        return locator
    body = lines[rules[0] + 1 :]
    quoted = [body.index(row.strip()) for row in rows if row.strip() in body]
    first, last = int(cells[2]), int(cells[4])
    left_over = last - first + 1 - len(body)
    above = sum(bool(line.strip("| ")) for line in lines[: rules[0]])  # a table without a header has an empty one
    # Either the range is that of the rows alone (a repeated header), or it begins with the lines above them.
    if not quoted or not all(line.startswith("|") for line in body) or left_over not in (0, above):
        return locator
    top = first + left_over
    return replace(locator, cell_range=f"{cells[1]}{top + min(quoted)}:{cells[3]}{top + max(quoted)}")
