"""What a parser sees and what it gives: a source in, typed blocks with places out (design section 3, seed 001)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

BBox = tuple[float, float, float, float]
"""(x0, y0, x1, y1) in PDF points, top-left origin, of the page as displayed."""


class BlockType(StrEnum):
    """Semantic kind of a block."""

    HEADING = "heading"
    TEXT = "text"
    CODE = "code"
    LIST = "list"
    QUOTE = "quote"
    TABLE = "table"
    IMAGE = "image"


@dataclass(frozen=True, slots=True)
class SourceLocator:
    """Where a thing lies in its original file. All fields are optional: formats differ in how exactly they can say.

    page and slide are 1-based; bbox is in PDF points, top-left origin, page as displayed; spans lists every
    (page, bbox) where the thing lies in several places, page and bbox then being the first; line_start and line_end
    are 1-based and inclusive; cell_range is A1 notation such as "B2:D9".
    """

    heading_path: tuple[str, ...] = ()
    page: int | None = None
    bbox: BBox | None = None
    spans: tuple[tuple[int, BBox], ...] = ()
    sheet: str | None = None
    cell_range: str | None = None
    slide: int | None = None
    line_start: int | None = None
    line_end: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON form without the empty fields."""
        out: dict[str, Any] = {}
        if self.heading_path:
            out["heading_path"] = list(self.heading_path)
        if self.page is not None:
            out["page"] = self.page
        if self.bbox is not None:
            out["bbox"] = [round(v, 2) for v in self.bbox]
        if self.spans:
            out["spans"] = [[page, [round(v, 2) for v in box]] for page, box in self.spans]
        if self.sheet is not None:
            out["sheet"] = self.sheet
        if self.cell_range is not None:
            out["cell_range"] = self.cell_range
        if self.slide is not None:
            out["slide"] = self.slide
        if self.line_start is not None:
            out["line_start"] = self.line_start
        if self.line_end is not None:
            out["line_end"] = self.line_end
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> SourceLocator:
        """Inverse of `to_dict`; unknown keys are ignored."""
        data = data or {}
        bbox = data.get("bbox")
        return cls(
            heading_path=tuple(data.get("heading_path") or ()),
            page=data.get("page"),
            bbox=_bbox(bbox) if bbox else None,
            spans=tuple((int(page), _bbox(box)) for page, box in data.get("spans") or ()),
            sheet=data.get("sheet"),
            cell_range=data.get("cell_range"),
            slide=data.get("slide"),
            line_start=data.get("line_start"),
            line_end=data.get("line_end"),
        )

    def display(self) -> str:
        """One line for a person: page / sheet and cells / slide / lines, then the heading path; "" when unknown."""
        parts: list[str] = []
        if self.page is not None:
            pages = sorted({page for page, _ in self.spans} | {self.page})
            parts.append(f"p. {pages[0]}" if len(pages) == 1 else f"pp. {pages[0]}-{pages[-1]}")
        if self.sheet is not None:
            parts.append(f"{self.sheet}!{self.cell_range}" if self.cell_range else self.sheet)
        if self.slide is not None:
            parts.append(f"slide {self.slide}")
        if self.line_start is not None and not parts:
            end = self.line_end if self.line_end is not None else self.line_start
            parts.append(f"line {self.line_start}" if end == self.line_start else f"lines {self.line_start}-{end}")
        if self.heading_path:
            parts.append(" > ".join(self.heading_path))
        return " · ".join(parts)


def _bbox(values: Any) -> BBox:
    x0, y0, x1, y1 = (float(v) for v in values)
    return (x0, y0, x1, y1)


@dataclass(frozen=True, slots=True)
class Block:
    """Smallest semantic unit of a parsed document, in reading order.

    HEADING: metadata["level"] is 1-6 and locator.heading_path ends with the heading itself.
    TABLE: metadata["rows"] is a grid of equal-length rows of strings (a merged cell's text stands in every grid cell
    that it covers), metadata["header_rows"] counts the leading header rows; content is the same table as Markdown.
    Over several pages metadata["row_starts"] is the 0-based row with which each of locator.spans begins.
    IMAGE: content is "![caption](asset://ID)" followed by caption, OCR and vision text; metadata["asset_id"] names it.
    LIST: one block per item; metadata["level"] is the 0-based nesting, metadata["marker"] what stands before it.
    metadata["footnote"] is the mark of a footnote, "" without one; metadata["links"] lists {"text", "uri"}.
    metadata["notes"] is True for speaker notes; metadata["ocr"] True (with "confidence" 0-1) for recognised text.
    """

    id: str
    type: BlockType
    content: str
    locator: SourceLocator = SourceLocator()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParsedAsset:
    """An image found while parsing, with its bytes; stored by `ingestion.steps`, referenced as asset://ID."""

    id: str
    sha256: str
    media_type: str
    content: bytes
    width: int | None = None
    height: int | None = None
    caption: str = ""
    locator: SourceLocator = SourceLocator()


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """Every parser's output; nothing after it knows the original format."""

    document_id: str
    version: int
    blocks: tuple[Block, ...]
    assets: tuple[ParsedAsset, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the file: title, author, pages, sheets, slides, language ... whatever the format states."""
    warnings: tuple[str, ...] = ()
    """What a person should know: a page that could not be read, a formula without a value ..."""

    @property
    def recognized(self) -> int:
        """Pages and pictures whose text was recognised: metadata["ocr_pages"], and IMAGE blocks with "ocr"."""
        pictures = sum(block.type is BlockType.IMAGE and bool(block.metadata.get("ocr")) for block in self.blocks)
        return len(self.metadata.get("ocr_pages", ())) + pictures

    @property
    def unrecognized(self) -> int:
        """Pages and pictures whose text would have to be recognised and was not, because that is off or comes later:
        metadata["unrecognized_pages"] (1-based numbers) and metadata["unrecognized_pictures"] (how many)."""
        return len(self.metadata.get("unrecognized_pages", ())) + int(self.metadata.get("unrecognized_pictures", 0))


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """A parser's input: a local file (never bytes in memory) and what it is called. path is readable by the child."""

    document_id: str
    version: int
    filename: str
    path: str
    mime_type: str = ""
    size: int = 0
    skip_pages: frozenset[int] = frozenset()
    """1-based pages (slides, sheets, pictures) that the parser is to leave out, because they break it."""
