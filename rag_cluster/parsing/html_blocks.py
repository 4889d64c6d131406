"""A tree of HTML elements -> blocks. Shared by HTML and by Markdown, which is rendered to HTML first.

Text is collected as a browser lays it out: inline elements run together, block elements end the paragraph. A frame
says what a finished paragraph becomes: TEXT in the body, LIST in an item, QUOTE in a quotation. Elements may carry
LINES ("3-7"), the lines of the source that they come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rag_cluster.domain.blocks import BlockType, SourceLocator
from rag_cluster.errors import DocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.boilerplate import DROPPED, is_boilerplate, is_decoration, is_hidden
from rag_cluster.parsing.data_uri import embedded_picture
from rag_cluster.parsing.html_tables import is_layout, table_grid
from rag_cluster.parsing.html_text import BREAK, dedent, formula, is_icon, preformatted, tidy
from rag_cluster.parsing.limits import SMALL_PIXELS, ParseLimits
from rag_cluster.parsing.superscripts import superscript

LINES = "data-rag-lines"
_BLOCK_TAGS = """
address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure
footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li listing main menu nav ol optgroup option p plaintext
pre search section summary table tbody td tfoot th thead tr ul xmp
"""
BLOCK_TAGS = frozenset(_BLOCK_TAGS.split())
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language-|lang-|highlight-source-|brush:\s*|highlight-)(?!default|none|text)([\w+#.-]+)"
)


@dataclass(slots=True)
class _Frame:
    """An open list item, quotation or body: its finished paragraphs wait until something else begins."""

    kind: BlockType
    level: int = 0
    marker: str = ""
    glue: str = "\n"
    note: str = ""
    """The mark of a footnote."""
    parts: list[str] = field(default_factory=list)
    lines: tuple[int, int] | None = None


class HtmlWalker:
    """Walks elements and fills a builder. keep_all: nothing is taken for boilerplate (fragments, Markdown).

    collecting: images stay in a list instead of becoming blocks.
    """

    def __init__(
        self, builder: BlockBuilder, limits: ParseLimits, *, keep_all: bool = False, collecting: bool = False
    ) -> None:
        self._collecting = collecting
        self._builder = builder
        self._limits = limits
        self._keep_all = keep_all
        self._frames = [_Frame(BlockType.TEXT)]
        self._inline: list[str] = []
        self._images: list[Any] = []
        self._lines: tuple[int, int] | None = None
        self._list_level = -1
        self._handlers: dict[str, Callable[[Any], None]] = {
            "pre": self._code,
            "listing": self._code,
            "xmp": self._code,
            "table": self._table,
            "ul": self._list,
            "ol": self._list,
            "menu": self._list,
            "dl": self._definitions,
            "blockquote": self._quote,
            "figure": self._figure,
            **dict.fromkeys(_HEADINGS, self._heading),
        }

    def walk(self, root: Any) -> None:
        """Everything below an element, and its own text."""
        self._children(root)
        self._paragraph()

    # -- elements ------------------------------------------------------------------------------------------------

    def _element(self, element: Any) -> None:
        tag = element.tag
        if not isinstance(tag, str) or tag in DROPPED or is_hidden(element) or is_decoration(element):
            return
        if not self._keep_all and is_boilerplate(element):
            self._paragraph()
            return
        if tag in BLOCK_TAGS:
            self._paragraph()
        self._lines = _lines_of(element) or self._lines
        if tag in BLOCK_TAGS:
            if tag == "p" and self._only_code(element):
                self._code(element)
                return
            (self._handlers.get(tag) or self._children)(element)
            self._paragraph()
        else:
            self._inline_element(element)

    def _children(self, element: Any) -> None:
        if element.text:
            self._inline.append(element.text)
        for child in element:
            self._element(child)
            if child.tail:
                self._inline.append(child.tail)

    def _inline_element(self, element: Any) -> None:
        tag = element.tag
        if tag == "br":
            self._inline.append(BREAK)
        elif tag == "img":
            self._images.append(element)
        elif tag == "input":
            if element.get("type") == "checkbox" and next(element.iterancestors("li", "td"), None) is not None:
                self._inline.append("[x] " if "checked" in element.attrib else "[ ] ")
        elif tag == "math":
            self._inline.append(formula(element))
        elif tag == "q":
            self._inline.append("“")
            self._children(element)
            self._inline.append("”")
        elif tag in ("rt", "rp"):
            return
        elif tag == "sup" and (text := "".join(element.itertext()).strip()) and (not len(element) or text.isdigit()):
            self._inline.append(superscript(text))
        else:
            self._children(element)

    def _heading(self, element: Any) -> None:
        text, images = self._collect(element)
        self._interrupt()
        self._builder.heading(text, _HEADINGS[element.tag], self._locator())
        self._emit_images(images)

    def _code(self, element: Any) -> None:
        self._interrupt()
        inner = element.find("code")
        source = inner if inner is not None and not (element.text or "").strip() else element
        lines = _lines_of(source) or self._lines
        # Highlighters name the language on the code, on the pre or on one of the two boxes around it.
        named = (source, element, *islice(element.iterancestors("div", "figure"), 2))
        found = next(filter(None, (_LANGUAGE.search(each.get("class", "")) for each in named)), None)
        text = "".join(preformatted(element)).expandtabs(4)
        metadata = {"language": found[1]} if found else {}
        self._builder.add(BlockType.CODE, dedent(text), _locator(lines), metadata)

    def _only_code(self, element: Any) -> bool:
        """A paragraph in the body that is one code span and nothing else is code, not prose."""
        return (
            self._frames[-1].kind is BlockType.TEXT
            and not self._collecting
            and len(element) == 1
            and element[0].tag == "code"
            and not (element.text or "").strip()
            and not (element[0].tail or "").strip()
        )

    def _quote(self, element: Any) -> None:
        self._interrupt()
        level = sum(frame.kind is BlockType.QUOTE for frame in self._frames)
        self._framed(_Frame(BlockType.QUOTE, level, glue="\n\n"), element)

    def _list(self, element: Any) -> None:
        self._interrupt()
        self._list_level += 1
        number = _integer(element.get("start"), 1)
        for child in element:
            if not isinstance(child.tag, str) or is_hidden(child):
                continue
            if child.tag == "li":
                number = _integer(child.get("value"), number)
                marker = f"{number}." if element.tag == "ol" else "-"
                number += 1
                self._lines = _lines_of(child) or self._lines
                note = marker[:-1] if "footnote-item" in child.get("class", "").split() else ""
                self._framed(_Frame(BlockType.LIST, self._list_level, marker, note=note), child)
            else:
                self._element(child)
        self._list_level -= 1

    def _definitions(self, element: Any) -> None:
        """A term and its descriptions are one item: apart they say nothing."""
        self._interrupt()
        self._list_level += 1
        frame: _Frame | None = None
        previous = ""
        for child in _definition_children(element):
            if frame is None or (child.tag == "dt" and previous != "dt"):
                if frame is not None:
                    self._close(self._frames.pop())
                frame = _Frame(BlockType.LIST, self._list_level)
                self._frames.append(frame)
            self._lines = _lines_of(child) or self._lines
            self._children(child)
            self._paragraph()
            previous = child.tag
        if frame is not None:
            self._close(self._frames.pop())
        self._list_level -= 1

    def _figure(self, element: Any) -> None:
        caption_element = element.find(".//figcaption")
        images = [image for image in element.iter("img") if not is_hidden(image)]
        if not images or next(element.iter("table", "pre", "blockquote"), None) is not None:
            self._children(element)
            return
        self._interrupt()
        caption = self._collect(caption_element)[0] if caption_element is not None else ""
        for position, image in enumerate(images):
            self._image(image, caption if position == 0 else "")

    def _table(self, element: Any) -> None:
        if is_layout(element):
            self._children(element)
            return
        self._interrupt()
        images: list[Any] = []
        nested: list[Any] = []

        def cell_text(cell: Any) -> str:
            text, found = self._collect(cell)
            if not text and found:
                text = " ".join(image.get("alt", "") for image in found).strip()
            images.extend(image for image in found if text != (image.get("alt") or "").strip())
            if not self._collecting:
                nested.extend(_outermost_tables(cell))
            return text

        rows, header_rows = table_grid(element, cell_text)
        caption_element = element.find("caption")
        caption = self._collect(caption_element)[0] if caption_element is not None else ""
        if caption:
            self._builder.add(BlockType.TEXT, caption, self._locator(), {"caption": True})
        metadata = {"caption": caption} if caption else {}
        self._builder.table(rows, header_rows, self._locator(), **metadata)
        for inner in nested:
            self._table(inner)
        self._emit_images(images)

    # -- collected text ------------------------------------------------------------------------------------------

    def _collect(self, element: Any) -> tuple[str, list[Any]]:
        """(text of an element with one line per paragraph, its images), without making blocks."""
        lines: list[str] = []
        collector = HtmlWalker(_Sink(lines), self._limits, keep_all=True, collecting=True)
        collector._children(element)
        collector._paragraph()
        return "\n".join(lines), collector._images

    def _paragraph(self) -> None:
        """End the paragraph: its text goes to the open frame."""
        text = tidy("".join(self._inline))
        self._inline.clear()
        frame = self._frames[-1]
        if text:
            frame.parts.append(text)
            frame.lines = _union(frame.lines, self._lines)
            if frame.kind is BlockType.TEXT:
                self._close(frame)
        if self._images and not self._collecting:
            images, self._images = self._images, []
            self._interrupt()
            self._emit_images(images)

    def _framed(self, frame: _Frame, element: Any) -> None:
        self._frames.append(frame)
        self._children(element)
        self._paragraph()
        self._close(self._frames.pop())

    def _interrupt(self) -> None:
        """Something begins that is a block of its own: what the frames hold stands before it."""
        for frame in self._frames:
            self._close(frame)

    def _close(self, frame: _Frame) -> None:
        if frame.parts:
            kind, text = frame.kind, frame.glue.join(frame.parts)
            metadata: dict[str, Any] = {}
            if frame.note:
                kind, text = BlockType.TEXT, f"[^{frame.note}]: {text}" if frame.marker else text
                metadata = {"footnote": frame.note}
            elif kind is BlockType.LIST:
                metadata = {"level": frame.level, "marker": frame.marker}
            elif kind is BlockType.QUOTE and frame.level:
                metadata = {"level": frame.level}
            self._builder.add(kind, text, _locator(frame.lines), metadata)
            # What follows in the same item is its continuation.
            frame.marker = ""
        frame.parts.clear()
        frame.lines = None

    def _locator(self) -> SourceLocator:
        return _locator(self._lines)

    # -- pictures ------------------------------------------------------------------------------------------------

    def _emit_images(self, images: list[Any]) -> None:
        for image in images:
            self._image(image, "")

    def _image(self, element: Any, caption: str) -> None:
        """With bytes (data: URI) an asset; otherwise the caption or alt text, if there is one."""
        alt = tidy(element.get("alt") or "")
        source = element.get("src") or ""
        caption, text = (caption, alt if alt and alt not in caption else "") if caption else (alt, "")
        if source.startswith("data:image/") and self._embedded(source, caption, text):
            return
        if len(caption) > 1 and not is_icon(element):
            self._builder.picture(caption, text=text, locator=self._locator())

    def _embedded(self, source: str, caption: str, text: str) -> bool:
        """Whether a data: URI held a picture that is worth an asset."""
        try:
            picture = embedded_picture(source, self._limits)
        except DocumentError as error:
            self._builder.warn(f"A picture inside the document was left out: {error}")
            return False
        if picture.width * picture.height <= 4:
            # A tracking pixel, or what stands in for a picture that is loaded later.
            return False
        if min(picture.width, picture.height) < SMALL_PIXELS and not caption and not text:
            return True
        self._builder.image(
            picture.content,
            picture.media_type,
            caption=caption,
            text=text,
            width=picture.width,
            height=picture.height,
            locator=self._locator(),
        )
        return True


class _Sink(BlockBuilder):
    """Takes the text of blocks instead of the blocks, for the inside of a cell."""

    def __init__(self, lines: list[str]) -> None:
        self._taken = lines
        self.warnings = []

    def add(self, kind: Any, content: str, locator: Any = None, metadata: Any = None) -> None:
        """The text alone."""
        if content.strip():
            self._taken.append(content.strip())

    def heading(self, text: str, level: int, locator: Any = None, **metadata: Any) -> None:
        """A heading inside a cell is text."""
        self.add(BlockType.TEXT, text)

    def image(self, content: bytes, media_type: str, *, caption: str = "", text: str = "", **metadata: Any) -> None:
        """A picture inside a cell is its caption: a table's cells hold text alone."""
        self.add(BlockType.IMAGE, "\n".join(part for part in (caption, text) if part))

    def table(self, rows: Any, header_rows: int = 1, locator: Any = None, **metadata: Any) -> None:
        """A table inside a cell: a line per row."""
        for row in rows:
            self.add(BlockType.TEXT, " | ".join(cell for cell in row if cell))


def _definition_children(element: Any) -> Iterator[Any]:
    for child in element:
        if not isinstance(child.tag, str) or is_hidden(child):
            continue
        if child.tag in ("dt", "dd"):
            yield child
        elif child.tag == "div":
            yield from _definition_children(child)


def _outermost_tables(cell: Any) -> Iterator[Any]:
    for child in cell:
        if child.tag == "table":
            yield child
        else:
            yield from _outermost_tables(child)


def _lines_of(element: Any) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d{1,9})-(\d{1,9})", element.get(LINES) or "")
    return (int(found[1]), int(found[2])) if found else None


def _union(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1])


def _locator(lines: tuple[int, int] | None) -> SourceLocator:
    return SourceLocator(line_start=lines[0], line_end=lines[1]) if lines else SourceLocator()


def _integer(value: str | None, default: int) -> int:
    try:
        return int(value) if value is not None else default
    except ValueError:
        return default
