"""How much a parser may read, expand, decode and allocate. Checked before the expensive step, never after it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rag_cluster.errors import DocumentTooLargeError, EmptyDocumentError

MIB = 1024 * 1024
SMALL_PIXELS = 16
"""A picture without alt text that is this low or narrow is a line, a bullet or a spacer."""


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """Limits of one document. Sizes are bytes, times seconds. The defaults are the settings' defaults."""

    max_file_bytes: int = 200 * MIB
    max_expanded_bytes: int = 1024 * MIB
    """Of all members of an archive together."""
    max_expansion_ratio: int = 200
    """Expanded size over stored size of an archive."""
    max_pages: int = 20_000
    """Pages, slides or frames."""
    max_image_pixels: int = 80_000_000
    timeout: float = 600.0
    memory_bytes: int = 3 * 1024 * MIB
    """What the isolated child may allocate."""
    max_ocr_pictures: int = 20
    """Pictures inside one document whose text is recognised; may be 0."""
    conversion_timeout: float = 120.0
    """Of LibreOffice on one document."""
    page_timeout: float = 120.0
    """Of one page, slide or picture; of a sheet, between two signs of life."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0 and (name, getattr(self, name)) != ("max_ocr_pictures", 0):
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")


def check_file_size(path: str, filename: str, limits: ParseLimits) -> int:
    """The file's size in bytes. EmptyDocumentError at zero, DocumentTooLargeError above the limit."""
    size = Path(path).stat().st_size
    if size == 0:
        raise EmptyDocumentError(f"{filename!r} holds no bytes")
    if size > limits.max_file_bytes:
        raise DocumentTooLargeError(f"{filename!r} has {size} bytes; the limit is {limits.max_file_bytes}")
    return size


def check_page_count(count: int, limits: ParseLimits) -> None:
    """DocumentTooLargeError when there are more pages, slides or frames than allowed."""
    if count > limits.max_pages:
        raise DocumentTooLargeError(f"The document has {count} pages; the limit is {limits.max_pages}")


def check_image_size(width: int, height: int, limits: ParseLimits) -> None:
    """DocumentTooLargeError for more pixels than allowed. Call it with the size of the header, before decoding."""
    if width * height > limits.max_image_pixels:
        raise DocumentTooLargeError(
            f"A picture of {width} x {height} pixels is larger than the limit of {limits.max_image_pixels} pixels"
        )
