"""What every parser shares: building blocks in reading order, with ids, heading paths, tables and assets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rag_cluster.domain import ids
from rag_cluster.domain.blocks import (
    Block,
    BlockType,
    DocumentSource,
    ParsedAsset,
    ParsedDocument,
    SourceLocator,
)
from rag_cluster.errors import EmptyDocumentError

if TYPE_CHECKING:
    from rag_cluster.parsing.pictures import PictureReader


def table_markdown(rows: Sequence[Sequence[str]], header_rows: int) -> str:
    """A grid as a Markdown table. Without header rows the header line is left empty, as Markdown needs one."""
    if not rows:
        return ""
    width = len(rows[0])

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_cell(cell) for cell in cells) + " |"

    head = [line(row) for row in rows[:1]] if header_rows else [line([""] * width)]
    rule = "|" + " --- |" * width
    body = [line(row) for row in rows[1 if header_rows else 0 :]]
    return "\n".join([*head, rule, *body])


_UNSEEN = re.compile("[\u00ad\u200b\u2060\ufeff]")


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r\n", "\n").replace("\n", "<br>").strip()


def storable(text: str) -> str:
    """Without what no store takes (NUL characters go, lone surrogates become U+FFFD) and what nobody sees and no search
    finds: soft hyphens and blanks of no width inside words."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    if text.isascii():
        return text
    if _UNSEEN.search(text):
        text = _UNSEEN.sub("", text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def rectangular(rows: Sequence[Sequence[str | None]]) -> list[list[str]]:
    """Equal-length rows of strings; short rows are filled with ""."""
    width = max((len(row) for row in rows), default=0)
    return [[cell or "" for cell in row] + [""] * (width - len(row)) for row in rows]


class BlockBuilder:
    """Collects a document's blocks. Blank text makes no block; every block gets the current heading path.

    pictures: reads the text of pictures that come without any; None reads none.
    """

    def __init__(self, source: DocumentSource, pictures: PictureReader | None = None) -> None:
        self._source = source
        self._pictures = pictures
        self._blocks: list[Block] = []
        self._assets: dict[str, ParsedAsset] = {}
        self._headings: list[tuple[int, str]] = []
        self._placed = (SourceLocator(), SourceLocator())
        self.warnings: list[str] = []

    @property
    def heading_path(self) -> tuple[str, ...]:
        """Texts of the open headings, outermost first."""
        return tuple(text for _, text in self._headings)

    @property
    def has_blocks(self) -> bool:
        """Whether anything was added."""
        return bool(self._blocks)

    def reset_headings(self) -> None:
        """Close all headings: at a new sheet, slide or appended document."""
        self._headings.clear()
        self._placed = (SourceLocator(), SourceLocator())

    def heading(self, text: str, level: int, locator: SourceLocator = SourceLocator(), **metadata: Any) -> Block | None:
        """A heading of level 1-6 (clamped), which opens a section."""
        text = storable(" ".join(text.split()))
        if not text:
            return None
        level = min(max(level, 1), 6)
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        self._headings.append((level, text))
        self._placed = (SourceLocator(), SourceLocator(heading_path=self.heading_path))
        return self.add(BlockType.HEADING, text, locator, {"level": level, **metadata})

    def add(
        self,
        kind: BlockType,
        content: str,
        locator: SourceLocator = SourceLocator(),
        metadata: Mapping[str, Any] | None = None,
    ) -> Block | None:
        """One block after the others."""
        content = storable(content)
        content = content.strip("\n") if kind is BlockType.CODE else content.strip()
        if not content:
            return None
        block = Block(
            id=ids.block_id(self._source.document_id, self._source.version, len(self._blocks)),
            type=kind,
            content=content,
            locator=self._under_headings(locator),
            metadata=dict(metadata or {}),
        )
        self._blocks.append(block)
        return block

    def _under_headings(self, locator: SourceLocator) -> SourceLocator:
        """The locator with the current heading path. Many blocks in a row have the same one: it is made once."""
        if locator is not self._placed[0] and locator != self._placed[0]:
            path = locator.heading_path or self.heading_path
            self._placed = (locator, replace(locator, heading_path=path))
        return self._placed[1]

    def table(
        self,
        rows: Sequence[Sequence[str | None]],
        header_rows: int = 1,
        locator: SourceLocator = SourceLocator(),
        **metadata: Any,
    ) -> Block | None:
        """A TABLE from a grid whose merged cells are already written into every cell that they cover."""
        grid = [[storable(cell) for cell in row] for row in rectangular(rows)]
        if not grid or not any(cell.strip() for row in grid for cell in row):
            return None
        header_rows = min(header_rows, len(grid))
        return self.add(
            BlockType.TABLE,
            table_markdown(grid, header_rows),
            locator,
            {"rows": grid, "header_rows": header_rows, **metadata},
        )

    def image(
        self,
        content: bytes,
        media_type: str,
        *,
        caption: str = "",
        text: str = "",
        width: int | None = None,
        height: int | None = None,
        locator: SourceLocator = SourceLocator(),
        **metadata: Any,
    ) -> Block | None:
        """An IMAGE block and its asset (the same bytes are one asset). text: OCR or description."""
        sha256 = hashlib.sha256(content).hexdigest()
        identity = ids.asset_id(self._source.document_id, sha256)
        caption = " ".join(storable(caption).split())
        self._assets.setdefault(
            identity, ParsedAsset(identity, sha256, media_type, content, width, height, caption, locator)
        )
        alt = caption.replace("[", "(").replace("]", ")")
        if self._pictures is not None and (found := self._pictures.read(content)):
            text = f"{text.strip()}\n{storable(found.text)}"
            metadata = {**metadata, "ocr": True, "confidence": round(found.confidence, 3)}
        body = "\n".join(part for part in (f"![{alt}](asset://{identity})", text.strip()) if part)
        return self.add(BlockType.IMAGE, body, locator, {"asset_id": identity, "caption": caption, **metadata})

    def picture(
        self, caption: str, *, text: str = "", locator: SourceLocator = SourceLocator(), **metadata: Any
    ) -> Block | None:
        """An IMAGE block without an asset: a picture that is only linked, of which we have the caption but no bytes."""
        caption = " ".join(storable(caption).split())
        body = "\n".join(part for part in (caption, text.strip()) if part)
        return self.add(BlockType.IMAGE, body, locator, {"caption": caption, **metadata})

    def warn(self, message: str) -> None:
        """Something that a person should know; the same message once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def build(self, metadata: Mapping[str, Any] | None = None, *, unfinished: bool = False) -> ParsedDocument:
        """The document. EmptyDocumentError when no block holds anything, unless what is missing awaits recognition."""
        metadata = dict(metadata or {})
        for message in self._pictures.all_warnings() if self._pictures is not None else ():
            self.warn(message)
        if self._pictures is not None and self._pictures.unread:
            metadata["unrecognized_pictures"] = self._pictures.unread
        if not self._blocks and not unfinished:
            reason = f" ({'; '.join(self.warnings)})" if self.warnings else ""
            raise EmptyDocumentError(f"No text was found in {self._source.filename!r}{reason}")
        return ParsedDocument(
            document_id=self._source.document_id,
            version=self._source.version,
            blocks=tuple(self._blocks),
            assets=tuple(self._assets.values()),
            metadata=metadata,
            warnings=tuple(self.warnings),
        )
