"""Text in the pictures that a document carries: screenshots, scanned inserts, drawn diagrams."""

from __future__ import annotations

import hashlib
import io
import time
from dataclasses import dataclass

from rag_cluster.domain.ports import TextRecognizer
from rag_cluster.errors import MissingDependencyError
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode, recognize_page

SMALL_SIDE = 40
SMALL_AREA = 16_000
"""Pixels of the shorter side and of the area under which a picture is taken for a decoration."""
SURE = 0.6
"""Lines below this are what a recogniser sees in textures."""
SECONDS = 60.0
"""Of one document, together: a picture takes 1-5 s of a CPU."""
SENT_SIDE = 4000
"""Pixels of the longer side that are read; what is larger is scaled down."""


@dataclass(frozen=True, slots=True)
class PictureText:
    """Lines in reading order; confidence 0-1, the mean by length."""

    text: str
    confidence: float


class PictureReader:
    """Recognises the pictures of one document: each one once, a bounded number of them, in bounded time.

    auto: what is large enough to hold text; force: whatever its size; off: none. Without a recognizer, or off, what
    would be read is counted (`unread`). `all_warnings` says what was left out.
    """

    def __init__(self, limits: ParseLimits, mode: OcrMode, recognizer: TextRecognizer | None) -> None:
        self._limits = limits
        self._force = mode is OcrMode.FORCE
        self._off = mode is OcrMode.OFF
        self._recognizer = None if self._off else recognizer
        self._counting = self._recognizer is None
        self._seen: set[str] = set()
        self.unread = 0
        self._read: dict[str, PictureText | None] = {}
        self._tried = 0
        self._spent = 0.0
        self.warnings: list[str] = []

    def read(self, content: bytes) -> PictureText | None:
        """The text of an encoded picture, None without any. Pictures that cannot be decoded have none."""
        sha256 = hashlib.sha256(content).hexdigest()
        if self._counting and sha256 not in self._seen:
            self._seen.add(sha256)
            self.unread += self.unread < self._limits.max_ocr_pictures and self._legible(content)
        if self._recognizer is None:
            return None
        if sha256 not in self._read:
            self._read[sha256] = self._recognize(content, self._recognizer)
        return self._read[sha256]

    def all_warnings(self) -> list[str]:
        """What a person should know of pictures whose text is not there."""
        if not self.unread:
            return self.warnings
        why = "text recognition is off (--ocr, RAG_OCR)" if self._off else "they await text recognition"
        return [*self.warnings, f"The text of {self.unread} picture(s) was not read: {why}"]

    def _legible(self, content: bytes) -> bool:
        """Whether a picture would be read; its header tells."""
        from PIL import Image

        try:
            with Image.open(io.BytesIO(content)) as picture:
                return self._wanted(picture.width, picture.height)
        except Exception:  # Pillow's readers raise what they like on damaged pictures, which are never read
            return False

    def _recognize(self, content: bytes, recognizer: TextRecognizer) -> PictureText | None:
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(io.BytesIO(content)) as picture:
                if not self._wanted(picture.width, picture.height) or not self._allowed():
                    return None
                picture.draft("RGB", (SENT_SIDE, SENT_SIDE))
                image = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
        except UnidentifiedImageError:
            self._warn("The text of a picture was not read: its format is unknown")
            return None
        except Exception as error:  # becomes a warning: Pillow's readers raise what they like on damaged pictures
            self._warn(f"The text of a picture was not read: {error}")
            return None
        image.thumbnail((SENT_SIDE, SENT_SIDE))
        self._tried += 1
        started = time.monotonic()
        try:
            found = recognize_page(recognizer, image, upright=True)
        except MissingDependencyError as error:
            self._warn(f"The text of pictures was not read: {error.message}")
            self._recognizer = None
            return None
        finally:
            self._spent += time.monotonic() - started
        sure = [p for p in found if p.confidence >= SURE]
        weight = sum(len(p.text) for p in sure)
        if weight < 2:
            return None
        return PictureText("\n".join(p.text for p in sure), sum(p.confidence * len(p.text) for p in sure) / weight)

    def _wanted(self, width: int, height: int) -> bool:
        if width * height > self._limits.max_image_pixels:
            return False
        return self._force or (min(width, height) >= SMALL_SIDE and width * height >= SMALL_AREA)

    def _allowed(self) -> bool:
        """Whether number and time leave room for one more."""
        if self._tried >= self._limits.max_ocr_pictures:
            self._warn(f"Only {self._limits.max_ocr_pictures} pictures were read (RAG_OCR_MAX_PICTURES)")
            return False
        if self._spent >= SECONDS:
            self._warn(f"Pictures after the first {self._tried} were not read: it took {SECONDS:g} s")
            return False
        return True

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)
