"""Text of HTML as a browser lays it out: inline pieces run into paragraphs, and frames say what these become."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rag_cluster.domain.blocks import BlockType, SourceLocator
from rag_cluster.errors import DocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.data_uri import embedded_picture
from rag_cluster.parsing.html_text import is_icon, tidy
from rag_cluster.parsing.limits import SMALL_PIXELS, ParseLimits


@dataclass(slots=True)
class Frame:
    """An open list item, quotation or body: its finished paragraphs wait until something else begins."""

    kind: BlockType
    level: int = 0
    marker: str = ""
    glue: str = "\n"
    note: str = ""
    """The mark of a footnote."""
    parts: list[str] = field(default_factory=list)
    lines: tuple[int, int] | None = None


class Flow:
    """What was read and is no block yet. collecting: images stay in a list instead of becoming blocks."""

    def __init__(self, builder: BlockBuilder, limits: ParseLimits, *, collecting: bool = False) -> None:
        self.builder = builder
        self.collecting = collecting
        self.frames = [Frame(BlockType.TEXT)]
        self.inline: list[str] = []
        self.images: list[Any] = []
        self.lines: tuple[int, int] | None = None
        self._limits = limits

    def paragraph(self) -> None:
        """End the paragraph: its text goes to the open frame."""
        text = tidy("".join(self.inline))
        self.inline.clear()
        frame = self.frames[-1]
        if text:
            frame.parts.append(text)
            frame.lines = _union(frame.lines, self.lines)
            if frame.kind is BlockType.TEXT:
                self.close(frame)
        if self.images and not self.collecting:
            images, self.images = self.images, []
            self.interrupt()
            self.emit(images)

    @contextlib.contextmanager
    def frame(self, frame: Frame) -> Iterator[None]:
        """What is collected inside belongs to it."""
        self.frames.append(frame)
        yield
        self.paragraph()
        self.close(self.frames.pop())

    def interrupt(self) -> None:
        """Something begins that is a block of its own: what the frames hold stands before it."""
        for frame in self.frames:
            self.close(frame)

    def close(self, frame: Frame) -> None:
        """What it holds becomes a block; the frame may go on."""
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
            self.builder.add(kind, text, lines_locator(frame.lines), metadata)
            # What follows in the same item is its continuation.
            frame.marker = ""
        frame.parts.clear()
        frame.lines = None

    def locator(self) -> SourceLocator:
        """The lines of the source that are read now."""
        return lines_locator(self.lines)

    def emit(self, images: list[Any]) -> None:
        """Pictures become blocks."""
        for image in images:
            self.picture(image, "")

    def picture(self, element: Any, caption: str) -> None:
        """With bytes (data: URI) an asset; otherwise the caption or alt text, if there is one."""
        alt = tidy(element.get("alt") or "")
        source = element.get("src") or ""
        caption, text = (caption, alt if alt and alt not in caption else "") if caption else (alt, "")
        if source.startswith("data:image/") and self._embedded(source, caption, text):
            return
        if len(caption) > 1 and not is_icon(element):
            self.builder.picture(caption, text=text, locator=self.locator())

    def _embedded(self, source: str, caption: str, text: str) -> bool:
        """Whether a data: URI held a picture that is worth an asset."""
        try:
            picture = embedded_picture(source, self._limits)
        except DocumentError as error:
            self.builder.warn(f"A picture inside the document was left out: {error}")
            return False
        if picture.width * picture.height <= 4:
            # A tracking pixel, or what stands in for a picture that is loaded later.
            return False
        if min(picture.width, picture.height) < SMALL_PIXELS and not caption and not text:
            return True
        self.builder.image(
            picture.content,
            picture.media_type,
            caption=caption,
            text=text,
            width=picture.width,
            height=picture.height,
            locator=self.locator(),
        )
        return True


class TextSink(BlockBuilder):
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


def _union(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1])


def lines_locator(lines: tuple[int, int] | None) -> SourceLocator:
    """First and last line of the source; nothing without them."""
    return SourceLocator(line_start=lines[0], line_end=lines[1]) if lines else SourceLocator()
