"""One page: words, shapes -> items (lines, tables, figures) in reading order, without anything native in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rag_cluster.domain.blocks import BBox
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.pdf import (
    alignment,
    charts,
    figures,
    footnotes,
    links,
    native,
    panels,
    rules,
    tables,
    tagged,
    tagged_layout,
)
from rag_cluster.parsing.pdf.annotations import annotation_words
from rag_cluster.parsing.pdf.covered import on_colour, without_covered
from rag_cluster.parsing.pdf.figures import Figure
from rag_cluster.parsing.pdf.geometry import Frame, PageSpace, area, overlap, page_space
from rag_cluster.parsing.pdf.layout import Obstacle, Region, regions
from rag_cluster.parsing.pdf.lines import Line, Segment, join_words, rows, segments
from rag_cluster.parsing.pdf.links import Link
from rag_cluster.parsing.pdf.shapes import Picture, Shapes, read_shapes
from rag_cluster.parsing.pdf.styles import SLANTED
from rag_cluster.parsing.pdf.tables import Table
from rag_cluster.parsing.pdf.tagged import Tags
from rag_cluster.parsing.pdf.text import TextLayer, Word, read_text


@dataclass(slots=True)
class PlacedTable:
    """A table with its displayed box."""

    table: Table
    box: BBox
    page: int
    caption: str = ""
    reach: tuple[float, float] = (0.0, 0.0)
    """Top and bottom as shares of the height of the page as read."""
    spans: tuple[tuple[int, BBox], ...] = ()
    """Where it lies, when it goes on over pages."""
    row_starts: list[int] = field(default_factory=list)
    """The row with which each of the spans begins."""


@dataclass(slots=True)
class OcrText:
    """One recognised paragraph, displayed box."""

    text: str
    box: BBox
    confidence: float
    page: int
    rows: tuple[tuple[str, ...], ...] = ()
    """The grid, when it is a table."""


MIN_SIZE = 1.5
"""Points; smaller text is not there to be read."""

Item = Line | PlacedTable | Figure | OcrText
_T = TypeVar("_T")


@dataclass(slots=True)
class PageContent:
    """What later stages need of a page. number is 1-based; sizes are of the displayed page in points."""

    number: int
    width: float
    height: float
    items: list[Item] = field(default_factory=list)
    turn: int = 0
    """Quarter turns by which most of the text is turned."""
    headings: dict[int, int] = field(default_factory=dict)
    """Marked content id -> level, as the structure tree has it."""
    tags: Tags | None = None
    """The structure tree, where it is to be followed."""
    links: list[Link] = field(default_factory=list)
    ocr: bool = False
    unrecognized: bool = False
    """Its text would have to be recognised, and was not."""
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RawPage:
    """An open page's text and shapes, before layout."""

    space: PageSpace
    layer: TextLayer
    shapes: Shapes
    words: list[Word]
    """Visible words."""
    notes: dict[int, str] = field(default_factory=dict)
    """id of a footnote's first word -> its mark."""
    links: list[Link] = field(default_factory=list)


def read(document: Any, page: Any, unit: float = 1.0) -> RawPage:
    """Text and shapes of an open pypdfium2 page, hidden text left out. unit: points per unit of user space."""
    space = page_space(page, unit)
    shapes = read_shapes(page, space)
    textpage = page.get_textpage()  # closed with its page, so that the layer can split runs until then
    layer = read_text(textpage, space)
    words = without_covered(page, textpage, layer, _visible(page, layer.words, shapes, space), shapes, space)
    raw = RawPage(space, layer, shapes, words, footnotes.find(textpage, layer, words, shapes, space))
    raw.links = links.read(document, page, textpage, space)
    words += annotation_words(document, page, space, words)
    return raw


def picture_share(raw: RawPage) -> float:
    """Share of the page that its largest picture covers."""
    page = raw.space.width * raw.space.height
    return max((area(p.box) for p in raw.shapes.pictures), default=0.0) / page


def _visible(page: Any, words: Sequence[Word], shapes: Shapes, space: PageSpace) -> list[Word]:
    """Without invisible text, unless it is the text layer of a scan; without white text on white."""
    invisible = sum(w.style.invisible for w in words)
    if invisible:
        scan = any(area(p.box) > 0.5 * space.width * space.height for p in shapes.pictures)
        if not (scan and invisible > 0.5 * len(words)):
            words = [w for w in words if not w.style.invisible]
    out = [w for w in words if w.style.size >= MIN_SIZE]
    white = [w for w in out if w.style.color >= 0xFAFAFA and not w.style.invisible and not _on_dark(w, shapes)]
    return _without(out, _without(white, on_colour(page, white, space))) if white else out


def _on_dark(word: Word, shapes: Shapes) -> bool:
    """Whether a shape that is not white lies below a white word; gradients and patterns are no such shapes."""
    x, y = (word.x0 + word.x1) / 2, (word.y0 + word.y1) / 2
    boxes = [box for box, color in shapes.fills if color < 0xF8F8F8]
    boxes += [p.box for p in shapes.pictures] + shapes.drawings
    boxes += [(r.start, r.at - 2, r.end, r.at + 2) for r in shapes.horizontal]
    return any(b[0] - 1 <= x <= b[2] + 1 and b[1] - 1 <= y <= b[3] + 1 for b in boxes)


def lay_out(pdf: Any, page: Any, number: int, raw: RawPage, limits: ParseLimits) -> PageContent:
    """The page's items in reading order."""
    space = raw.space
    content = PageContent(number, space.width, space.height, links=raw.links)
    tags = tagged.read(pdf, page)
    if tags is not None:
        content.headings = tags.heading_levels
        raw.words = tagged_layout.replace_texts(raw.words, tags)
    groups: dict[int, list[Word]] = {}
    for word in raw.words:
        turn = 3 if raw.layer.vertical and word.style.turn == 0 else word.style.turn
        groups.setdefault(turn, []).append(word)
    slanted = groups.pop(SLANTED, [])
    content.turn = max(groups, key=lambda t: sum(len(w.text) for w in groups[t]), default=0)
    pictures = figures.find(raw.shapes, space)

    def extract(picture: Picture) -> Figure | None:
        figure = figures.extract(pdf, page, space, picture, limits)
        if figure is not None:
            figure.page = number
            figure.alternative = _alternative(picture, tags)
        return figure

    region = 0
    for turn in sorted(groups, key=lambda t: (t != content.turn, t)):
        frame = Frame(turn, space.width, space.height)
        main = turn == content.turn
        part = _Part(frame, raw.layer, groups[turn], raw.shapes if main else Shapes(), extract)
        part.pictures = pictures if main else []
        part.page, part.region, part.notes, part.tags = number, region, raw.notes, tags
        content.items += part.items()
        region = part.region
    if not groups:
        content.items += [figure for picture in pictures if (figure := extract(picture)) is not None]
    content.items += _slanted(slanted, raw.words, space, region)
    if tags is not None and tagged.sane(tags, [i for i in content.items if isinstance(i, Line)], space.height):
        content.tags = tags
        content.items = tagged_layout.ordered(content.items, [_order(item, tags) for item in content.items])
    return content


def _alternative(picture: Picture, tags: Tags | None) -> str:
    """The alternative text that the structure tree has for a picture."""
    if tags is None or not tags.alternatives or not picture.handle:
        return ""
    return tags.alternatives.get(native.object_mcid(picture.handle), "")


def _order(item: Item, tags: Tags) -> int | None:
    if isinstance(item, Line):
        return tagged_layout.line_order(item, tags)
    return (item.table.order or None) if isinstance(item, PlacedTable) else None


def _slanted(words: Sequence[Word], others: Sequence[Word], space: PageSpace, region: int) -> list[Item]:
    """Slanted text stays, unless it is stamped across other text (a watermark)."""
    upright = [w for w in others if w.style.turn != SLANTED]
    kept: list[Item] = []
    for piece in segments(words):
        boxes = [(w.x0, w.y0, w.x1, w.y1) for w in upright]
        if not any(overlap(piece.box, box) > 0.3 * area(box) for box in boxes) and piece.size < 30:
            kept.append(Line([piece], Frame(0, space.width, space.height), region))
    return kept


def _without(things: list[_T], taken: Sequence[_T]) -> list[_T]:
    gone = {id(thing) for thing in taken}
    return [thing for thing in things if id(thing) not in gone] if gone else things


class _Part:
    """The words of one reading direction, laid out in their own frame."""

    def __init__(
        self,
        frame: Frame,
        layer: TextLayer,
        words: list[Word],
        shapes: Shapes,
        extract: Callable[[Picture], Figure | None],
    ) -> None:
        self.frame = frame
        self.region = self.page = 0
        self._layer = layer
        if frame.turn:
            for word in words:
                word.x0, word.y0, word.x1, word.y1 = frame.enter((word.x0, word.y0, word.x1, word.y1))
        self._words = words
        self._shapes = shapes.within(frame)
        self._extract = extract
        self.pictures: Sequence[Picture] = ()
        self.notes: dict[int, str] = {}
        self.tags: Tags | None = None

    def items(self) -> list[Item]:
        """Lines, tables and figures in reading order."""
        found, pieces = self._figures()
        known = self._tagged_tables()
        words, placed = self._ruled_tables(known)
        if placed:
            pieces = segments(words)
        inner: list[Obstacle] = []
        for box in panels.find(pieces, self._shapes, self.frame.size):
            within = [p for p in pieces if panels.holds(box, p.box)]
            tables_in = [t for t in placed if panels.holds(box, t.box)]
            figures_in = [f for f in found if panels.holds(box, self.frame.enter(f.box))]
            inner.append(Obstacle(box, self._flow(within, tables_in, figures_in, [])))
            pieces = _without(pieces, within)
            placed, found = _without(placed, tables_in), _without(found, figures_in)
        return self._flow(pieces, placed, found, panels.merged(inner, pieces))

    def _flow(
        self, pieces: list[Segment], placed: list[Table], found: list[Figure], inner: list[Obstacle]
    ) -> list[Item]:
        """Segments, tables, figures and panels of one area, in reading order."""
        lines, aligned = self._aligned_tables(pieces)
        obstacles: list[Obstacle] = [Obstacle(table.box, table) for table in (*placed, *aligned)]
        obstacles += [Obstacle(self.frame.enter(figure.box), figure) for figure in found]
        obstacles += inner
        out: list[Item] = []
        parts = regions([*itertools.chain.from_iterable(lines), *obstacles])
        for part in parts:
            # A page of one region was searched for tables already; without any its rows are known, too.
            whole = lines if len(parts) == 1 and not aligned else None
            out += self._region(part, whole, search=len(parts) > 1)
        return out

    def _figures(self) -> tuple[list[Figure], list[Segment]]:
        """(drawn figures, which take the words and rules inside them along, and pictures; segments outside of them)"""
        pieces = segments(self._words)
        out: list[Figure] = []
        pictures = list(self.pictures)
        for box in charts.captioned(pieces, self._shapes, self.frame.size):
            place = self.frame.leave(box)
            figure = self._extract(Picture(place, 0, True))
            if figure is None:
                continue
            inside, pieces = charts.contents(box, pieces)
            figure.text = "\n".join(join_words([w for s in row for w in s.words]) for row in rows(inside))
            pictures = [p for p in pictures if overlap(p.box, place) < 0.5 * area(p.box)]
            self._shapes = self._shapes.outside(box)
            out.append(figure)
        if out:
            self._words = [word for piece in pieces for word in piece.words]
        out += [figure for picture in pictures if (figure := self._extract(picture)) is not None]
        return out, pieces

    def _tagged_tables(self) -> list[Table]:
        """Tables of the structure tree, which take their words along."""
        if self.tags is None or not self.tags.tables:
            return []
        self._words, found = tagged_layout.tables(self._words, self.tags)
        return found

    def _ruled_tables(self, known: list[Table]) -> tuple[list[Word], list[Table]]:
        """(words outside of tables, tables, those known already among them; rules around them are their boxes)"""
        words, found = self._words, known
        for grid in rules.find_grids(self._shapes):
            x0, y0, x1, y1 = grid.box
            words = self._cut_runs(words, grid.xs, y0, y1)
            inside = [w for w in words if x0 <= (w.x0 + w.x1) / 2 <= x1 and y0 <= (w.y0 + w.y1) / 2 <= y1]
            if not inside:
                tagged_layout.frame_by(grid.box, known)
                continue
            table = tables.read_grid(grid, inside)
            if table is None:
                continue
            found.append(table)
            back = {id(w) for group in (*table.before, *table.after) for w in group}
            taken = {id(w) for w in inside} - back
            words = [w for w in words if id(w) not in taken]
        return words, found

    def _cut_runs(self, words: list[Word], xs: Sequence[float], top: float, bottom: float) -> list[Word]:
        """Runs that cross a column boundary as single words."""
        out: list[Word] = []
        for word in words:
            if (
                word.members[1] - word.members[0] > 1
                and top <= (word.y0 + word.y1) / 2 <= bottom
                and any(word.x0 + 1 < x < word.x1 - 1 for x in xs)
            ):
                for single in self._layer.split(word):
                    single.x0, single.y0, single.x1, single.y1 = self.frame.enter(
                        (single.x0, single.y0, single.x1, single.y1)
                    )
                    out.append(single)
            else:
                out.append(word)
        return out

    def _aligned_tables(self, pieces: list[Segment]) -> tuple[list[list[Segment]], list[Table]]:
        """(rows outside of tables, tables that fill whole rows of the page)"""
        left: list[list[Segment]] = []
        found: list[Table] = []
        for table_or_row in alignment.find_tables(rows(pieces), self._shapes, self.frame.size[1]):
            if isinstance(table_or_row, Table):
                found.append(table_or_row)
            else:
                left.append(table_or_row)
        return left, found

    def _region(self, part: Region, known: list[list[Segment]] | None, *, search: bool) -> list[Item]:
        """Rows of one region with its tables without rules and its obstacles between them."""
        self.region += 1
        lines: Sequence[list[Segment] | Table] = known or rows([i for i in part.items if isinstance(i, Segment)])
        if search:
            lines = alignment.find_tables(lines, self._shapes, self.frame.size[1])  # type: ignore[arg-type]
        obstacles = [i for i in part.items if not isinstance(i, Segment)]
        bands: list[tuple[float, Sequence[Item]]] = []
        for table_or_row in footnotes.as_lines(lines, self.notes) if self.notes else lines:
            if isinstance(table_or_row, Table):
                bands.append((table_or_row.box[1], [self._placed(table_or_row)]))
                continue
            line = (
                footnotes.NoteLine(table_or_row, self.frame, self.region)
                if isinstance(table_or_row, footnotes.NoteRow)
                else Line(table_or_row, self.frame, self.region)
            )
            bands.append(((line.box[1] + line.box[3]) / 2, [line]))
        for obstacle in obstacles:
            content = obstacle.content
            if isinstance(content, Table):
                bands.append((obstacle.y0, [self._placed(content)]))
            elif isinstance(content, Figure):
                bands.append((obstacle.y0, [content]))
            elif isinstance(content, list):
                bands.append((obstacle.y0, content))
        bands.sort(key=lambda band: band[0])
        return [item for _, items in bands for item in items]

    def _placed(self, table: Table) -> PlacedTable:
        height = self.frame.size[1]
        reach = (table.box[1] / height, table.box[3] / height)
        return PlacedTable(table, self.frame.leave(table.box), self.page, reach=reach)
