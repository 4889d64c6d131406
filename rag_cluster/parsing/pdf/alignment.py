"""Tables without rules: rows whose short pieces stand under each other in columns.

core rows (as many pieces as the table has columns, or nearly) -> column intervals -> headers above, wrapped labels and
section rows between -> grid. Running text in columns is no table: its pieces are long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rag_cluster.parsing.pdf.furniture import ZONE
from rag_cluster.parsing.pdf.geometry import union
from rag_cluster.parsing.pdf.lines import Segment
from rag_cluster.parsing.pdf.shapes import Rule, Shapes
from rag_cluster.parsing.pdf.tables import Table, join_cell_lines

Row = list[Segment]
SHORT = 26
"""Characters of a cell that is not the row's label."""
_NUMERIC = re.compile(
    r"^[^\w]*[-–—−+±<>≤≥~*$€£¥(]*\d[\d.,\s%()*†‡§/:–−-]*[a-z%*]{0,3}$|^[-–—*.xX()]{1,5}$|^(?:n/?a|\([A-Z]\))$",
    re.I,
)
_LEADERS = re.compile(r"(?:\s*[.·…]\s*){3,}$")


def find_tables(lines: Sequence[Row], shapes: Shapes, height: float) -> list[Row | Table]:
    """The rows of one region, with runs of them that make a table replaced by it."""
    out: list[Row | Table] = []
    index = 0
    while index < len(lines):
        end = _run_end(lines, index, height)
        found = _read(lines, index, end, len(out), shapes, out) if end - index >= 2 else None
        if found is None:
            out.append(lines[index])
            index += 1
        else:
            table, start, stop = found
            del out[len(out) - (index - start) :]
            out.append(table)
            index = stop
    return out


def is_core(row: Row) -> bool:
    """Whether a row could be one of a table: three or more pieces, all but the label short."""
    return len(row) >= 3 and all(p.chars <= SHORT for p in row[1:]) and row[0].chars <= 60


def _pair(row: Row) -> bool:
    """A label and a number."""
    return len(row) == 2 and row[0].chars <= 60 and _NUMERIC.match(row[1].text) is not None


def _run_end(lines: Sequence[Row], start: int, height: float) -> int:
    """End of the run of table rows from `start` (which must be one), including single pieces between them."""
    if not (is_core(lines[start]) or _pair(lines[start])):
        return start
    end, loose = start + 1, 0
    for i in range(start + 1, len(lines)):
        size = max(p.size for p in lines[i])
        gap = _top(lines[i]) - _bottom(lines[i - 1])
        # In the page's margins a blank line ends a table: what follows is a footer.
        in_margin = _top(lines[i]) > (1 - ZONE) * height or _bottom(lines[i - 1]) < ZONE * height
        if gap > (0.9 if in_margin else 3.2) * size:
            break
        if is_core(lines[i]) or _pair(lines[i]):
            end, loose = i + 1, 0
        else:
            loose += 1
            if loose > 3 or sum(p.chars for p in lines[i]) > 70:
                break
    return end


def _top(row: Row) -> float:
    return min(p.y0 for p in row)


def _bottom(row: Row) -> float:
    return max(p.y1 for p in row)


@dataclass(slots=True)
class _Columns:
    bounds: list[tuple[float, float]]

    def of(self, piece: Segment) -> list[int]:
        """Columns that a piece covers; the nearest one when it lies between."""
        hit = [i for i, (a, b) in enumerate(self.bounds) if min(b, piece.x1) - max(a, piece.x0) > 0.5]
        if hit:
            return hit
        middle = (piece.x0 + piece.x1) / 2
        return [min(range(len(self.bounds)), key=lambda i: abs(sum(self.bounds[i]) / 2 - middle))]


def _read(
    lines: Sequence[Row], start: int, end: int, done: int, shapes: Shapes, before: Sequence[Row | Table]
) -> tuple[Table, int, int] | None:
    """(table, first row index with its header, end) or None."""
    run = lines[start:end]
    most = max(len(row) for row in run)
    core = [row for row in run if len(row) >= max(2, 0.6 * most)]
    columns = _columns(core)
    if columns is None or not _plausible(core, columns):
        return None
    first = _header_start(lines, start, columns, shapes, before, done)
    end = _tail(lines, end, core)
    body = _body(lines[start:end], columns)
    header = _header(lines[first:start], columns)
    rows = header + body
    box = union(p.box for row in lines[first:end] for p in row)
    heads = len(header)
    if _labels(body) and not heads:
        heads = 1
    elif not body[0][0] and _bold(lines[start]) and end - start > 2 and not _bold(lines[start + 1]):
        heads += 1  # years over the columns of numbers
    table = Table(rows, box, heads, columns=columns.bounds)
    table.bold_head = _bold(lines[first])
    table.bold_body = any(_bold(row) for row in lines[max(start, first + 1) : end])
    return table, first, end


def _bold(row: Row) -> bool:
    return all(word.style.bold for piece in row for word in piece.words)


def _labels(body: list[list[str]]) -> bool:
    return not any(_NUMERIC.match(cell) for cell in body[0][1:] if cell)


def _columns(core: Sequence[Row]) -> _Columns | None:
    """Union of the pieces' intervals, after leaving out pieces that bridge what most rows keep apart."""
    pieces = sorted(((p.x0, p.x1) for row in core for p in row), key=lambda i: i[0])
    bounds = _merge(pieces)
    most = max(len(row) for row in core)
    if len(bounds) < most:
        # A few wide pieces glue columns together: take the rows with the most pieces only.
        full = [row for row in core if len(row) >= 0.9 * most]
        bounds = _merge(sorted(((p.x0, p.x1) for row in full for p in row), key=lambda i: i[0]))
    return _Columns(bounds) if len(bounds) >= 2 else None


def _merge(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    out: list[tuple[float, float]] = []
    for a, b in intervals:
        if out and a < out[-1][1] + 0.8:
            out[-1] = (out[-1][0], max(out[-1][1], b))
        else:
            out.append((a, b))
    return out


def _plausible(core: Sequence[Row], columns: _Columns) -> bool:
    count = len(columns.bounds)
    pieces = [p for row in core for p in row[1:]]
    numeric = sum(_NUMERIC.match(p.text) is not None for p in pieces) / len(pieces)
    if any(len({c for p in row for c in columns.of(p)[:1]}) < len(row) - 1 for row in core):
        return False
    if count == 2:
        return len(core) >= 3 and numeric > 0.7
    if len(core) < 2 or (len(core) < 3 and numeric < 0.5):
        return False
    mean = sum(p.chars for p in pieces) / len(pieces)
    return numeric > 0.4 or (mean < 16 and len(core) >= 3 and count >= 3 and _aligned(core, columns))


def _aligned(core: Sequence[Row], columns: _Columns) -> bool:
    """Whether most pieces of every column start, end or are centred at one place."""
    for index in range(len(columns.bounds)):
        pieces = [p for row in core for p in row if columns.of(p) == [index]]
        if len(pieces) < 0.5 * len(core):
            return False
        near = 0.6 * pieces[0].size
        edges = ([p.x0 for p in pieces], [p.x1 for p in pieces], [(p.x0 + p.x1) / 2 for p in pieces])
        if not any(sum(abs(e - median(es)) < near for e in es) > 0.75 * len(es) for es in edges):
            return False
    return True


def _header_start(
    lines: Sequence[Row], start: int, columns: _Columns, shapes: Shapes, before: Sequence[Row | Table], done: int
) -> int:
    """Rows above that belong to the header: pieces over the columns, down from the nearest rule across the table."""
    left, right = columns.bounds[0][0], columns.bounds[-1][1]
    first = start
    ceiling = _rule_above(shapes.horizontal, left, right, _top(lines[start]))
    available = 0
    while available < done and isinstance(before[done - 1 - available], list):
        available += 1
    while first > 0 and start - first < min(7, available):
        row = lines[first - 1]
        size = max(p.size for p in row)
        if _top(lines[first]) - _bottom(row) > 1.6 * size or sum(p.chars for p in row) > 90:
            break
        inside = ceiling is not None and _top(row) > ceiling - 2
        over = (len(row) >= 2 or _spans_values(row, columns)) and all(
            p.x0 >= left - 2 * size and p.x1 <= right + 2 * size for p in row
        )
        if not inside and (ceiling is not None or not over):
            break
        first -= 1
    return first


def _spans_values(row: Row, columns: _Columns) -> bool:
    """Whether a single bold piece stands over several columns, the labels' not among them."""
    covered = columns.of(row[0])
    return len(row) == 1 and _bold(row) and len(covered) > 1 and 0 not in covered


def _rule_above(rules: Sequence[Rule], left: float, right: float, y: float) -> float | None:
    """The topmost of the rules across the table that lie shortly above y."""
    across = [r.at for r in rules if r.at < y + 1 and y - r.at < 110 and r.start < left + 20 and r.end > right - 20]
    return min(across) if across else None


def _tail(lines: Sequence[Row], end: int, core: Sequence[Row]) -> int:
    """Include a wrapped label line right below the last row."""
    if end < len(lines) and len(lines[end]) == 1 and len(core[-1]) > 1:
        piece, last = lines[end][0], core[-1]
        overlap = _bottom(last) - piece.y0
        if overlap > 0.2 * piece.size and abs(piece.x0 - core[0][0].x0) < 3 * piece.size:
            return end + 1
    return end


def _header(rows: Sequence[Row], columns: _Columns) -> list[list[str]]:
    """Header lines: those of one level are joined column by column; a line of spanning pieces is a level of its own."""
    levels: list[list[list[str]]] = []
    spanning_before = None
    for row in rows:
        spans = any(len(columns.of(p)) > 1 for p in row) and len(row) < 0.7 * len(columns.bounds)
        if spanning_before is None or spans != spanning_before:
            levels.append([[] for _ in columns.bounds])
        spanning_before = spans
        for piece in row:
            for column in columns.of(piece):
                levels[-1][column].append(piece.text)
    return [[join_cell_lines(cell) for cell in level] for level in levels]


def _body(rows: Sequence[Row], columns: _Columns) -> list[list[str]]:
    """One grid row per core row; pieces of wrapped labels join the row that they overlap or continue."""
    grid: list[list[list[Segment]]] = []
    places: list[tuple[float, float, bool]] = []
    pending: list[Segment] = []
    for row in rows:
        core = len(row) > 1
        if not core and len(columns.of(row[0])) <= 2:
            piece = row[0]
            if places and places[-1][2] and piece.y0 < places[-1][1] - 0.15 * piece.size:
                _put(grid[-1], row, columns)
                continue
            pending.append(piece)
            continue
        cells: list[list[Segment]] = [[] for _ in columns.bounds]
        top = _top(row)
        joined = [p for p in pending if p.y1 > top + 0.15 * p.size]
        for piece in pending:
            if piece not in joined:
                _alone(grid, places, piece, columns)
        _put(cells, [*joined, *row], columns)
        pending = []
        grid.append(cells)
        places.append((top, _bottom(row), core))
    for piece in pending:
        _alone(grid, places, piece, columns)
    return [[_LEADERS.sub("", join_cell_lines([p.text for p in cell])) for cell in cells] for cells in grid]


def _put(cells: list[list[Segment]], row: Sequence[Segment], columns: _Columns) -> None:
    for piece in row:
        for column in columns.of(piece):
            cells[column].append(piece)


def _alone(
    grid: list[list[list[Segment]]], places: list[tuple[float, float, bool]], piece: Segment, columns: _Columns
) -> None:
    """A single piece: the second line of the label above, or a section row of its own."""
    column = columns.of(piece)[0]
    above = grid[-1][column] if grid else []
    close = bool(places) and piece.y0 - places[-1][1] < 0.35 * piece.size
    if close and above and piece.text[:1].islower():
        above.append(piece)
        places[-1] = (places[-1][0], piece.y1, places[-1][2])
        return
    cells: list[list[Segment]] = [[] for _ in columns.bounds]
    cells[column].append(piece)
    grid.append(cells)
    places.append((piece.y0, piece.y1, False))
