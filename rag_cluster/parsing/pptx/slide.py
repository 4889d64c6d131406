"""One slide: its shapes with their places, put into reading order and written as blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rag_cluster.domain.blocks import BlockType, SourceLocator
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.drawing import (
    add_chart,
    add_diagram,
    add_picture,
    alt_text,
    is_decorative,
    paragraph_text,
    rich_text,
)
from rag_cluster.parsing.ooxml import Package, alternatives, find, local_name, qn
from rag_cluster.parsing.pptx.geometry import SAME, Box, Transform, around, box_of, group_transform, number_of
from rag_cluster.parsing.pptx.order import Item, in_reading_order
from rag_cluster.parsing.pptx.text import add_paragraphs, list_styles, read_paragraphs

MAX_DEPTH = 40
_SHAPES = frozenset({"sp", "pic", "graphicFrame", "cxnSp"})
_TITLES = frozenset({"title", "ctrTitle"})
_FURNITURE = frozenset({"dt", "ftr", "sldNum", "hdr", "sldImg"})
_SHAPE_PROPERTIES = {"sp": "p:nvSpPr", "pic": "p:nvPicPr", "graphicFrame": "p:nvGraphicFramePr", "cxnSp": "p:nvCxnSpPr"}


class Layout:
    """What a slide inherits from; shared by all slides of one layout."""

    def __init__(self, layout: Any, master: Any) -> None:
        self._layout = _placeholders(layout)
        self._master = _placeholders(master)
        self._master_root = master
        self._ancestors: dict[tuple[str, str | None], tuple[Any, Any]] = {}

    def ancestors(self, mark: Any) -> tuple[Any, Any]:
        """(layout's, master's) placeholder that a placeholder with this p:ph takes its place and lists from."""
        if mark is None:
            return None, None
        key = (mark.get("type", "obj"), mark.get("idx"))
        if key not in self._ancestors:
            self._ancestors[key] = self._find_ancestors(*key)
        return self._ancestors[key]

    def list_styles(self, mark: Any) -> list[Any]:
        """List styles that a placeholder inherits, nearest first; none for other shapes."""
        kind = _kind(mark)
        return list_styles(kind, *self.ancestors(mark), self._master_root) if kind else []

    def _find_ancestors(self, kind: str, index: str | None) -> tuple[Any, Any]:
        on_layout = _find_placeholder(self._layout, kind, index)
        if on_layout is not None and kind == "obj":
            kind = _kind(_mark(on_layout))
        return on_layout, _find_placeholder(self._master, "body" if kind in ("obj", "subTitle") else kind, None)


class SlideReader:
    """Writes one slide's blocks."""

    def __init__(self, package: Package, part: str, number: int, builder: BlockBuilder, layout: Layout) -> None:
        self._package = package
        self._part = part
        self._builder = builder
        self._layout = layout
        self._locator = SourceLocator(slide=number)

    def read(self, root: Any) -> None:
        """Title first, then everything else by position."""
        tree = find(root, "p:cSld/p:spTree")
        if tree is None:
            return
        others: list[Item] = []
        for item in self._items(tree, SAME, 0):
            if _kind(item.mark) in _TITLES:
                self._builder.heading(rich_text(item.element), 1, self._locator)
            else:
                others.append(item)
        self._write(others)

    def notes(self, root: Any) -> None:
        """Speaker notes as one block."""
        lines: list[str] = []
        for shape in root.iter(qn("p:sp")):
            if _kind(_mark(shape)) == "body":
                lines += [text for text in map(paragraph_text, shape.iter(qn("a:p"))) if text.strip()]
        self._builder.add(BlockType.TEXT, "\n".join(lines), self._locator, {"notes": True})

    def _items(self, tree: Any, transform: Transform, depth: int) -> Iterator[Item]:
        for element in tree:
            name = local_name(element)
            if name == "AlternateContent":
                branch = next((b for b in alternatives(element) if any(local_name(s) in _KNOWN for s in b)), None)
                if branch is not None:
                    yield from self._items(branch, transform, depth)
            elif name == "grpSp" and depth < MAX_DEPTH:
                if not _is_hidden(element):
                    xfrm = find(element, "p:grpSpPr/a:xfrm")
                    children = list(self._items(element, group_transform(xfrm, transform), depth + 1))
                    box = box_of(xfrm, transform) or around([child.box for child in children])
                    yield Item(element, box, children)
            elif name in _SHAPES and not _is_hidden(element):
                mark = _mark(element)
                if _kind(mark) not in _FURNITURE:
                    yield Item(element, self._place(element, mark, transform), mark=mark)

    def _place(self, element: Any, mark: Any, transform: Transform) -> Box:
        """Where a shape lies; a placeholder without a place has its layout's or master's."""
        own = find(element, "p:xfrm") if local_name(element) == "graphicFrame" else find(element, "p:spPr/a:xfrm")
        box = box_of(own, transform)
        if box is None:
            for other in self._layout.ancestors(mark):
                box = box or box_of(find(other, "p:spPr/a:xfrm"), SAME)
        return box or (0.0, 0.0, 0.0, 0.0)

    # Writing

    def _write(self, items: list[Item]) -> None:
        for item in in_reading_order(items):
            if item.children is not None:
                self._write(item.children)
            elif local_name(item.element) == "graphicFrame":
                self._frame(item.element)
            elif local_name(item.element) == "pic":
                self._picture(item.element)
            else:
                self._text(item)

    def _text(self, item: Item) -> None:
        body = find(item.element, "p:txBody")
        if body is None:
            return
        metadata = {"role": "subtitle"} if _kind(item.mark) == "subTitle" else {}
        paragraphs = read_paragraphs(body, self._layout.list_styles(item.mark))
        add_paragraphs(self._builder, paragraphs, self._locator, **metadata)

    def _picture(self, element: Any) -> None:
        properties = find(element, "p:nvPicPr/p:cNvPr")
        if is_decorative(properties):
            return
        caption = alt_text(properties)
        blip = find(element, "p:blipFill/a:blip")
        link = None if blip is None else self._links().get(blip.get(qn("r:embed"), ""))
        if link is None or link.external:
            self._builder.picture(caption, locator=self._locator)
        else:
            add_picture(self._builder, self._package, link.target, caption=caption, locator=self._locator)

    def _frame(self, frame: Any) -> None:
        data = find(frame, "a:graphic/a:graphicData")
        for child in () if data is None else data:
            name = local_name(child)
            if name == "tbl":
                rows, header_rows = read_table(child)
                self._builder.table(rows, header_rows, self._locator)
            elif name == "chart":
                self._related(add_chart, child.get(qn("r:id")))
            elif name == "relIds":
                self._related(add_diagram, child.get(qn("r:dm")))
            else:
                # An embedded object shows a picture of itself.
                for picture in list(child.iter(qn("p:pic")))[-1:]:
                    self._picture(picture)

    def _related(self, add: Any, identifier: str | None) -> None:
        link = self._links().get(identifier or "")
        root = None if link is None or link.external else self._package.optional_xml(link.target)
        if root is not None:
            add(self._builder, root, self._locator)

    def _links(self) -> Any:
        return self._package.relationships(self._part)


_KNOWN = _SHAPES | {"grpSp"}


def read_table(table: Any) -> tuple[list[list[str]], int]:
    """(rows with merged cells filled, header rows) of an a:tbl."""
    grid: list[list[str]] = []
    spanned = False
    depth = 1
    for row_index, row in enumerate(table.findall(qn("a:tr"))):
        line: list[str] = []
        for column, cell in enumerate(row.findall(qn("a:tc"))):
            text = rich_text(cell)
            if is_set(cell, "vMerge") and row_index and column < len(grid[-1]):
                text = grid[-1][column]
            elif is_set(cell, "hMerge") and line:
                text = line[-1]
            if row_index == 0:
                spanned = spanned or number_of(cell, "gridSpan") > 1
                depth = max(depth, int(number_of(cell, "rowSpan")))
            line.append(text)
        grid.append(line)
    properties = find(table, "a:tblPr")
    marked = properties is not None and is_set(properties, "firstRow")
    if len(grid) < 2 or not (marked or _names_columns(grid)):
        return grid, 0
    if depth == 1 and not grid[0][0] and not grid[1][0]:
        depth = 2  # the second row names what the spans of the first one group
    return grid, min(depth, len(grid) - 1) if spanned else 1


def is_set(element: Any, name: str) -> bool:
    """Whether an attribute says yes."""
    return element.get(name) in ("1", "true")


def _names_columns(grid: list[list[str]]) -> bool:
    return not any(any(char.isdecimal() for char in text) and len(text) < 12 for text in grid[0][1:])


def _mark(element: Any) -> Any:
    """The p:ph of a shape, or None."""
    name = _SHAPE_PROPERTIES.get(local_name(element))
    return find(element, f"{name}/p:nvPr/p:ph") if name else None


def _kind(mark: Any) -> str:
    """What a placeholder is for: one without a type is for any object; "" where there is none."""
    return "" if mark is None else str(mark.get("type", "obj"))


def _placeholders(root: Any) -> list[tuple[str | None, str, Any]]:
    """(index, family of its kind, shape) of a layout's or master's placeholders."""
    shapes = () if root is None else root.iter(qn("p:sp"))
    marked = ((shape, mark) for shape in shapes if (mark := _mark(shape)) is not None)
    return [(mark.get("idx"), _family(_kind(mark)), shape) for shape, mark in marked]


def _find_placeholder(placeholders: list[tuple[str | None, str, Any]], kind: str, index: str | None) -> Any:
    same_kind = None
    for own_index, family, shape in placeholders:
        if index is not None and own_index == index:
            return shape
        if same_kind is None and family == _family(kind):
            same_kind = shape
    return same_kind


def _family(kind: str) -> str:
    return "title" if kind in _TITLES else kind


def _is_hidden(element: Any) -> bool:
    properties = next(element.iter(qn("p:cNvPr")), None)
    return properties is not None and is_set(properties, "hidden")
