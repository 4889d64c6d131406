"""Walks a DOCX body in reading order and writes its blocks."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from typing import Any

from rag_cluster.domain.blocks import BlockType, DocumentSource, SourceLocator
from rag_cluster.errors import DocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.docx.alt_chunk import add_foreign
from rag_cluster.parsing.docx.inline import Inline, InlineReader, is_placeholder, shown_branch
from rag_cluster.parsing.docx.numbering import Numbering
from rag_cluster.parsing.docx.pending import Pending, Picture
from rag_cluster.parsing.docx.styles import Styles, outline_level
from rag_cluster.parsing.docx.tables import only_cell, read_grid
from rag_cluster.parsing.drawing import add_chart, add_diagram, add_picture, alt_text, is_decorative, rich_text
from rag_cluster.parsing.ooxml import Package, find, local_name, qn

MAX_DEPTH = 40
"""Of tables, boxes and controls in one another. Word itself stops at 20."""
LONGEST_HEADING = 400
MAX_NESTED_DOCUMENTS = 3
_SKIPPED = frozenset({"sectPr", "del", "moveFrom", "sdtPr", "sdtEndPr", "pPr", "bookmarkStart", "bookmarkEnd"})
_FIGURE = re.compile(r"^(?:图|圖|figure|fig\.?|abb(?:ildung|\.)|照片)\s*[\d一二三四五六七八九十]", re.IGNORECASE)
_TABLE = re.compile(r"^(?:表|table|tab\.|tabelle|tableau|tabla)", re.IGNORECASE)
_TYPED_BULLET = re.compile(r"^([•◦▪‣●])\s*(?=\S)")
_HERE = SourceLocator()


class BodyReader:
    """State of one document's walk: counters, open fields, and what waits for the next paragraph."""

    def __init__(self, package: Package, part: str, builder: BlockBuilder, nesting: int = 0) -> None:
        self._nesting = nesting
        self._package = package
        self._part = part
        self._builder = builder
        self._styles = Styles(package.optional_xml(package.related(part, "styles")))
        self._numbering = Numbering(package.optional_xml(package.related(part, "numbering")))
        self._inline = InlineReader(self._styles)
        self._notes = {kind: _notes(package, part, kind) for kind in ("footnote", "endnote")}
        self._told: set[tuple[str, str]] = set()
        self._carried: Inline | None = None
        self._pending = Pending(package, builder)
        self._depth = 0
        self._in_box = 0

    def read(self, container: Any) -> None:
        """All blocks below a w:body, a note, a text box or a cell."""
        self._walk(container)
        if self._depth == 0:
            self._flush_carried()
            self._pending.flush()

    def _walk(self, container: Iterable[Any]) -> None:
        for node in container:
            name = local_name(node)
            if name == "p":
                self._paragraph(node)
            elif name == "tbl":
                self._table(node)
            elif name == "sdt":
                self._content_control(node)
            elif name == "AlternateContent":
                self._walk(shown_branch(node))
            elif name == "altChunk":
                self._alt_chunk(node)
            elif name not in _SKIPPED:
                self._walk(node)

    def _content_control(self, node: Any) -> None:
        properties = find(node, "w:sdtPr")
        gallery = find(properties, "w:docPartObj/w:docPartGallery")
        if gallery is not None and gallery.get(qn("w:val")) == "Table of Contents":
            return
        content = find(node, "w:sdtContent")
        if content is not None and not is_placeholder(properties):
            self._walk(content)

    def _alt_chunk(self, node: Any) -> None:
        link = self._package.relationships(self._part).get(node.get(qn("r:id"), ""))
        if link is None or link.external:
            return
        self._pending.flush()
        try:
            content = self._package.read(link.target)
            if not content.startswith(b"PK"):
                add_foreign(self._builder, content, link.target.lower(), self._package.limits)
            elif self._nesting < MAX_NESTED_DOCUMENTS:
                self._nested_document(content)
        except DocumentError as error:
            self._package.damaged(f"An embedded document was left out: {error.message}")

    def _nested_document(self, content: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".docx") as file:
            file.write(content)
            file.flush()
            source = DocumentSource("", 0, "embedded.docx", file.name, size=len(content))
            with Package(source, self._package.limits, self._builder.warn) as package:
                part = package.main_part("word/document.xml")
                body = find(package.xml(part), "w:body")
                if body is not None:
                    BodyReader(package, part, self._builder, self._nesting + 1).read(body)

    # Paragraphs

    def _paragraph(self, paragraph: Any) -> None:
        properties = find(paragraph, "w:pPr")
        style_id = _style_id(properties)
        inline = self._inline.read(paragraph, style_id)
        if self._carried:
            inline.prepend(self._carried)
            self._carried = None
        if _runs_on(properties):
            self._carried = inline
            return
        role = self._styles.role(style_id)
        text = inline.text
        if role == "caption" or (text and self._pending.pictures and _FIGURE.match(text) and len(text) < 200):
            self._caption_paragraph(inline)
            return
        level = self._heading_level(properties, style_id, role)
        number = self._number(properties, style_id)
        if level is None and number is None and self._pending.code_line(inline, role):
            return
        if text or inline.objects:
            self._pending.flush_code()
        if text:
            self._pending.before_text()
            self._write(text, role, level, number)
        self._after(inline)

    def _flush_carried(self) -> None:
        """Write a paragraph that runs on where no other follows that it could run on into."""
        inline, self._carried = self._carried, None
        if inline is None:
            return
        if text := inline.text:
            self._pending.flush_code()
            self._pending.before_text()
            self._write(text, "", None, None)
        self._after(inline)

    def _write(self, text: str, role: str, level: int | None, number: tuple[str, int] | None) -> None:
        marker, depth = number or ("", 0)
        if level is not None and len(text) <= LONGEST_HEADING and not self._in_box:
            self._builder.heading(f"{marker} {text}" if marker and marker != "•" else text, level)
        elif marker:
            self._builder.add(BlockType.LIST, text, metadata={"level": depth, "marker": marker})
        elif role == "quote":
            self._builder.add(BlockType.QUOTE, text)
        elif match := _TYPED_BULLET.match(text):
            self._builder.add(BlockType.LIST, text[match.end() :], metadata={"level": 0, "marker": match[1]})
        else:
            metadata: dict[str, Any] = {"role": role} if role == "subtitle" else {}
            self._builder.add(BlockType.TEXT, text, metadata=metadata | ({"text_box": True} if self._in_box else {}))

    def _heading_level(self, properties: Any, style_id: str | None, role: str) -> int | None:
        direct = find(properties, "w:outlineLvl")
        if direct is not None:
            return outline_level(direct)
        return self._styles.heading_level(style_id) or (1 if role == "title" else None)

    def _number(self, properties: Any, style_id: str | None) -> tuple[str, int] | None:
        """(marker, 0-based level) of an automatically numbered paragraph; counting happens here."""
        num_id, level = self._styles.numbering(style_id)
        own = find(properties, "w:numPr")
        if own is not None:
            for tag in ("w:numId", "w:ilvl"):
                said = find(own, tag)
                if said is not None and tag == "w:numId":
                    num_id = said.get(qn("w:val"))
                elif said is not None:
                    level = said.get(qn("w:val"))
        if not num_id or num_id == "0":
            return None
        tied = self._numbering.level_of_style(num_id, style_id) if level is None else None
        depth = tied if tied is not None else int(level) if level and level.isdecimal() else 0
        drawn = self._numbering.advance(num_id, depth)
        # The built-in styles "List Bullet 2" to 5 are lists of their own, each at its first level.
        if drawn is None:
            return None
        return drawn[0], self._styles.list_level(style_id) if own is None and not depth else depth

    # Pictures and their captions

    def _caption_paragraph(self, inline: Inline) -> None:
        self._pending.flush_code()
        for node in inline.objects:
            self._object(node)
        inline.objects.clear()
        if inline.text and self._pending.pictures and not _TABLE.match(inline.text):
            self._pending.flush_pictures(inline.text)
        elif inline.text:
            self._pending.before_text()
            self._pending.caption = inline.text
        self._after(inline)

    def _after(self, inline: Inline) -> None:
        """What hangs on a paragraph: drawings, then notes."""
        for node in inline.objects:
            self._object(node)
        for key in inline.notes:
            self._note(key)

    def _note(self, key: tuple[str, str]) -> None:
        note = self._notes[key[0]].get(key[1])
        if note is None or key in self._told:
            return
        self._told.add(key)
        self._pending.flush()
        lines: list[str] = []
        for paragraph in note.iter(qn("w:p")):
            inline = self._inline.read(paragraph, _style_id(find(paragraph, "w:pPr")))
            lines += [inline.text] if inline.text else []
        if lines:
            mark = self._inline.note_marks[key]
            self._builder.add(BlockType.TEXT, f"[^{mark}]: " + "\n".join(lines), metadata={key[0]: mark})

    def _object(self, node: Any, properties: Any = None) -> None:
        name = local_name(node)
        if node.tag in (qn("wp:inline"), qn("wp:anchor")):
            properties = find(node, "wp:docPr")
            if properties is not None and properties.get("hidden") in ("1", "true"):
                return
        if name == "AlternateContent":
            for child in shown_branch(node):
                self._object(child, properties)
        elif name == "txbxContent":
            self._box(node)
        elif name == "pic":
            self._picture(node, properties)
        elif name == "imagedata":
            self._linked_picture(node.get(qn("r:id"), ""), node.getparent().get("alt") or "")
        elif name == "chart":
            self._flush_and_add(add_chart, node.get(qn("r:id"), ""))
        elif name == "relIds":
            self._flush_and_add(add_diagram, node.get(qn("r:dm"), ""))
        elif name == "textpath":
            self._builder.add(BlockType.TEXT, node.get("string") or "", metadata={"text_box": True})
        elif node.tag == qn("a:txBody"):
            self._builder.add(BlockType.TEXT, rich_text(node), metadata={"text_box": True})
        else:
            for child in node:
                self._object(child, properties)

    def _picture(self, node: Any, properties: Any) -> None:
        own = find(node, "pic:nvPicPr/pic:cNvPr")
        if is_decorative(properties) or is_decorative(own):
            return
        blip = find(node, "pic:blipFill/a:blip")
        if blip is not None:
            identifier = blip.get(qn("r:embed")) or blip.get(qn("r:link"), "")
            self._linked_picture(identifier, alt_text(properties) or alt_text(own))

    def _linked_picture(self, identifier: str, caption: str) -> None:
        link = self._package.relationships(self._part).get(identifier)
        if link is None:
            return
        if link.external:
            self._pending.flush()
            self._builder.picture(caption)
            return
        if self._pending.caption and not _TABLE.match(self._pending.caption):
            text, self._pending.caption = self._pending.caption, ""
            add_picture(
                self._builder, self._package, link.target, caption=caption or text, text=text if caption else ""
            )
            return
        self._pending.pictures.append(Picture(link.target, caption))

    def _flush_and_add(self, add: Any, identifier: str) -> None:
        link = self._package.relationships(self._part).get(identifier)
        root = None if link is None or link.external else self._package.optional_xml(link.target)
        if root is not None:
            self._pending.flush()
            add(self._builder, root, _HERE)

    def _box(self, content: Any) -> None:
        if self._depth >= MAX_DEPTH:
            return
        self._pending.flush()
        carried, self._carried = self._carried, None
        self._depth += 1
        self._in_box += 1
        self._walk(content)
        self._pending.flush()
        self._in_box -= 1
        self._depth -= 1
        self._carried = carried

    # Tables

    def _table(self, table: Any) -> None:
        if self._depth >= MAX_DEPTH:
            self._builder.warn("Tables nested too deeply were left out")
            return
        self._flush_carried()
        self._pending.flush_code()
        self._pending.flush_pictures()
        caption = self._pending.caption
        self._pending.flush()
        self._depth += 1
        frame = only_cell(table)
        if frame is not None:
            self._walk(frame)
        else:
            grid = read_grid(table, self._cell_paragraph)
            metadata: dict[str, Any] = {"caption": caption} if caption else {}
            self._builder.table(grid.rows, grid.header_rows, _HERE, **metadata)
            for inline in grid.paragraphs:
                self._after(inline)
            self._walk(grid.nested)
        self._pending.flush()
        self._depth -= 1

    def _cell_paragraph(self, paragraph: Any) -> tuple[str, Inline]:
        properties = find(paragraph, "w:pPr")
        style_id = _style_id(properties)
        inline = self._inline.read(paragraph, style_id)
        number = self._number(properties, style_id)
        text = inline.text
        return (f"{number[0]} {text}" if number and number[0] and text else text), inline


def _runs_on(properties: Any) -> bool:
    """Whether the next paragraph goes on: the mark between was deleted, or this one is its drop cap."""
    mark, frame = find(properties, "w:rPr"), find(properties, "w:framePr")
    removed = find(mark, "w:del") is not None or find(mark, "w:moveFrom") is not None
    return removed or (frame is not None and frame.get(qn("w:dropCap")) in ("drop", "margin"))


def _style_id(properties: Any) -> str | None:
    style = find(properties, "w:pStyle")
    return None if style is None else str(style.get(qn("w:val")))


def _notes(package: Package, part: str, kind: str) -> dict[str, Any]:
    """Note id -> element, without the separators that Word keeps among them."""
    root = package.optional_xml(package.related(part, f"{kind}s"))
    notes = () if root is None else root.iter(qn(f"w:{kind}"))
    return {note.get(qn("w:id"), ""): note for note in notes if note.get(qn("w:type"), "normal") == "normal"}
