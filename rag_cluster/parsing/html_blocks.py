"""A tree of HTML elements -> blocks. Shared by HTML and by Markdown, which is rendered to HTML first.

Text is collected as a browser lays it out: inline elements run together, block elements end the paragraph. A frame
says what a finished paragraph becomes: TEXT in the body, LIST in an item, QUOTE in a quotation. Elements may carry
LINES ("3-7"), the lines of the source that they come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from rag_cluster.domain.blocks import BlockType
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.boilerplate import DROPPED, is_boilerplate, is_decoration, is_hidden
from rag_cluster.parsing.html_flow import Flow, Frame, TextSink, lines_locator
from rag_cluster.parsing.html_tables import is_layout, table_grid
from rag_cluster.parsing.html_text import BREAK, dedent, formula, preformatted
from rag_cluster.parsing.limits import ParseLimits
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


class HtmlWalker:
    """Walks elements and fills a builder. keep_all: nothing is taken for boilerplate (fragments, Markdown).

    collecting: images stay in a list instead of becoming blocks.
    """

    def __init__(
        self, builder: BlockBuilder, limits: ParseLimits, *, keep_all: bool = False, collecting: bool = False
    ) -> None:
        self._flow = Flow(builder, limits, collecting=collecting)
        self._builder = builder
        self._limits = limits
        self._keep_all = keep_all
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
        self._flow.paragraph()

    # -- elements ------------------------------------------------------------------------------------------------

    def _element(self, element: Any) -> None:
        tag = element.tag
        if not isinstance(tag, str) or tag in DROPPED or is_hidden(element) or is_decoration(element):
            return
        if not self._keep_all and is_boilerplate(element):
            self._flow.paragraph()
            return
        if tag in BLOCK_TAGS:
            self._flow.paragraph()
        self._flow.lines = _lines_of(element) or self._flow.lines
        if tag in BLOCK_TAGS:
            if tag == "p" and self._only_code(element):
                self._code(element)
                return
            (self._handlers.get(tag) or self._children)(element)
            self._flow.paragraph()
        else:
            self._inline_element(element)

    def _children(self, element: Any) -> None:
        if element.text:
            self._flow.inline.append(element.text)
        for child in element:
            self._element(child)
            if child.tail:
                self._flow.inline.append(child.tail)

    def _inline_element(self, element: Any) -> None:
        tag = element.tag
        if tag == "br":
            self._flow.inline.append(BREAK)
        elif tag == "img":
            self._flow.images.append(element)
        elif tag == "input":
            if element.get("type") == "checkbox" and next(element.iterancestors("li", "td"), None) is not None:
                self._flow.inline.append("[x] " if "checked" in element.attrib else "[ ] ")
        elif tag == "math":
            self._flow.inline.append(formula(element))
        elif tag == "q":
            self._flow.inline.append("“")
            self._children(element)
            self._flow.inline.append("”")
        elif tag in ("rt", "rp"):
            return
        elif tag == "sup" and (text := "".join(element.itertext()).strip()) and (not len(element) or text.isdigit()):
            self._flow.inline.append(superscript(text))
        else:
            self._children(element)

    def _heading(self, element: Any) -> None:
        text, images = self._collect(element)
        self._flow.interrupt()
        self._builder.heading(text, _HEADINGS[element.tag], self._flow.locator())
        self._flow.emit(images)

    def _code(self, element: Any) -> None:
        self._flow.interrupt()
        inner = element.find("code")
        source = inner if inner is not None and not (element.text or "").strip() else element
        lines = _lines_of(source) or self._flow.lines
        # Highlighters name the language on the code, on the pre or on one of the two boxes around it.
        named = (source, element, *islice(element.iterancestors("div", "figure"), 2))
        found = next(filter(None, (_LANGUAGE.search(each.get("class", "")) for each in named)), None)
        text = "".join(preformatted(element)).expandtabs(4)
        metadata = {"language": found[1]} if found else {}
        self._builder.add(BlockType.CODE, dedent(text), lines_locator(lines), metadata)

    def _only_code(self, element: Any) -> bool:
        """A paragraph in the body that is one code span and nothing else is code, not prose."""
        return (
            self._flow.frames[-1].kind is BlockType.TEXT
            and not self._flow.collecting
            and len(element) == 1
            and element[0].tag == "code"
            and not (element.text or "").strip()
            and not (element[0].tail or "").strip()
        )

    def _quote(self, element: Any) -> None:
        self._flow.interrupt()
        level = sum(frame.kind is BlockType.QUOTE for frame in self._flow.frames)
        with self._flow.frame(Frame(BlockType.QUOTE, level, glue="\n\n")):
            self._children(element)

    def _list(self, element: Any) -> None:
        self._flow.interrupt()
        self._list_level += 1
        number = _integer(element.get("start"), 1)
        for child in element:
            if not isinstance(child.tag, str) or is_hidden(child):
                continue
            if child.tag == "li":
                number = _integer(child.get("value"), number)
                marker = f"{number}." if element.tag == "ol" else "-"
                number += 1
                self._flow.lines = _lines_of(child) or self._flow.lines
                note = marker[:-1] if "footnote-item" in child.get("class", "").split() else ""
                with self._flow.frame(Frame(BlockType.LIST, self._list_level, marker, note=note)):
                    self._children(child)
            else:
                self._element(child)
        self._list_level -= 1

    def _definitions(self, element: Any) -> None:
        """A term and its descriptions are one item: apart they say nothing."""
        self._flow.interrupt()
        self._list_level += 1
        frame: Frame | None = None
        previous = ""
        for child in _definition_children(element):
            if frame is None or (child.tag == "dt" and previous != "dt"):
                if frame is not None:
                    self._flow.close(self._flow.frames.pop())
                frame = Frame(BlockType.LIST, self._list_level)
                self._flow.frames.append(frame)
            self._flow.lines = _lines_of(child) or self._flow.lines
            self._children(child)
            self._flow.paragraph()
            previous = child.tag
        if frame is not None:
            self._flow.close(self._flow.frames.pop())
        self._list_level -= 1

    def _figure(self, element: Any) -> None:
        caption_element = element.find(".//figcaption")
        images = [image for image in element.iter("img") if not is_hidden(image)]
        if not images or next(element.iter("table", "pre", "blockquote"), None) is not None:
            self._children(element)
            return
        self._flow.interrupt()
        caption = self._collect(caption_element)[0] if caption_element is not None else ""
        for position, image in enumerate(images):
            self._flow.picture(image, caption if position == 0 else "")

    def _table(self, element: Any) -> None:
        if is_layout(element):
            self._children(element)
            return
        self._flow.interrupt()
        images: list[Any] = []
        nested: list[Any] = []

        def cell_text(cell: Any) -> str:
            text, found = self._collect(cell)
            if not text and found:
                text = " ".join(image.get("alt", "") for image in found).strip()
            images.extend(image for image in found if text != (image.get("alt") or "").strip())
            if not self._flow.collecting:
                nested.extend(_outermost_tables(cell))
            return text

        rows, header_rows = table_grid(element, cell_text)
        caption_element = element.find("caption")
        caption = self._collect(caption_element)[0] if caption_element is not None else ""
        if caption:
            self._builder.add(BlockType.TEXT, caption, self._flow.locator(), {"caption": True})
        metadata = {"caption": caption} if caption else {}
        self._builder.table(rows, header_rows, self._flow.locator(), **metadata)
        for inner in nested:
            self._table(inner)
        self._flow.emit(images)

    # -- collected text ------------------------------------------------------------------------------------------

    def _collect(self, element: Any) -> tuple[str, list[Any]]:
        """(text of an element with one line per paragraph, its images), without making blocks."""
        lines: list[str] = []
        collector = HtmlWalker(TextSink(lines), self._limits, keep_all=True, collecting=True)
        collector._children(element)
        collector._flow.paragraph()
        return "\n".join(lines), collector._flow.images


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


def _integer(value: str | None, default: int) -> int:
    try:
        return int(value) if value is not None else default
    except ValueError:
        return default
