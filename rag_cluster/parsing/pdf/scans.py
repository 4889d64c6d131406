"""Pages and pictures without usable text: when they go to recognition, and what comes back."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from rag_cluster.domain.ports import TextRecognizer
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode, read_page, recognize_page
from rag_cluster.parsing.pdf import figures
from rag_cluster.parsing.pdf.figures import Figure
from rag_cluster.parsing.pdf.furniture import ZONE
from rag_cluster.parsing.pdf.geometry import area
from rag_cluster.parsing.pdf.page import OcrText, PageContent, RawPage, picture_share
from rag_cluster.parsing.pdf.styles import SLANTED

FEW_CHARACTERS = 24
"""Below this a page with a large picture counts as a page without text."""
MANY_CHARACTERS = 200
"""From this on a page has so much text of its own that its pictures are not read."""
STAMP_CHARACTERS = 400
"""Below this, text in the margins alone is what a library, a court or a copier stamped on a scan."""
STAMPED = "has a picture and no text but in its margins"
DPI = 200
_PRIVATE = re.compile("[\ue000-\uf8ff\ufffd\uffff]")
_WESTERN = re.compile("[\x80-\xff€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]")
"""What bytes of another encoding look like where they are taken for Windows-1252."""
_REPLACED = re.compile("锟斤拷|烫烫烫|屯屯屯")
"""What U+FFFD and unset memory look like in GBK."""
_CONTROLS = bytes(range(32))
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha())
_VOWELS = b"aeiouyAEIOUY"
FEW_VOWELS = 0.24
"""Of the letters: pages of real documents have 0.32 and more, letters shifted in the alphabet 0.14-0.20."""


class Scans:
    """Decides and recognises for one document."""

    def __init__(self, mode: OcrMode, recognizer: TextRecognizer | None, limits: ParseLimits) -> None:
        self._mode = mode
        self._recognizer = recognizer
        self._limits = limits
        self.unread_figures = 0

    @property
    def postponed(self) -> bool:
        """Recognition is wanted, but not here: what awaits it is left out and named."""
        return self._recognizer is None and self._mode is not OcrMode.OFF

    def reason(self, raw: RawPage) -> str:
        """Why the page's text layer does not serve; "" when it does."""
        if self._mode is OcrMode.FORCE:
            return "is recognised by request"
        characters = sum(len(w.text) for w in raw.words)
        if characters < FEW_CHARACTERS and picture_share(raw) > 0.5:
            return "has a picture and no text layer"
        if not raw.words:
            pictures = any(area(p.box) > 200 for p in raw.shapes.pictures)
            return "is drawn without a text layer" if pictures or len(raw.shapes.drawings) > 40 else ""
        return STAMPED if _is_stamped(raw, characters) else _garbage(raw, characters)

    def recognize(self, page: object, raw: RawPage, number: int, reason: str) -> PageContent | None:
        """The page by recognition, where it is stamped all but the stamps; an empty one when that comes later, None
        when it is off."""
        if self.postponed:
            return PageContent(number, raw.space.width, raw.space.height, unrecognized=True)
        if self._mode is OcrMode.OFF or self._recognizer is None:
            return None
        from PIL import ImageDraw

        scale = DPI / 72
        image = figures.render(page, raw.space, scale, self._limits)
        content = PageContent(number, raw.space.width, raw.space.height, ocr=True)
        if image is None:
            content.warnings.append(f"Page {number} {reason} and cannot be rendered")
            return content
        fx, fy = raw.space.width / image.width, raw.space.height / image.height
        if reason == STAMPED:
            draw = ImageDraw.Draw(image)
            for word in (w for w in raw.words if w.style.turn != SLANTED):
                draw.rectangle((word.x0 / fx, word.y0 / fy, word.x1 / fx, word.y1 / fy), fill="white")
        read = read_page(self._recognizer, image)
        if read.warning:
            content.warnings.append(f"Page {number}: {read.warning}")
        for paragraph in read.paragraphs:
            x0, y0, x1, y1 = paragraph.bbox
            box = (x0 * fx, y0 * fy, x1 * fx, y1 * fy)
            content.items.append(OcrText(paragraph.text, box, paragraph.confidence, number, paragraph.rows))
        if not content.items and reason != STAMPED:
            content.warnings.append(f"Page {number} {reason}; no text was recognised on it")
        return content

    def read_figures(self, raw: RawPage, content: PageContent) -> None:
        """Recognise large pictures of a page that has little text of its own; count them where that is not done."""
        if sum(len(w.text) for w in raw.words) > MANY_CHARACTERS:
            return
        from PIL import Image

        page = raw.space.width * raw.space.height
        for item in content.items:
            if isinstance(item, Figure) and area(item.box) > 0.02 * page:
                if self._mode is OcrMode.OFF or self._recognizer is None:
                    self.unread_figures += 1
                    continue
                found = recognize_page(self._recognizer, Image.open(io.BytesIO(item.content)).convert("RGB"))
                item.text = "\n".join(p.text for p in found)
                item.recognized = bool(found)
                item.confidence = min((p.confidence for p in found), default=1.0)

    def unread(self, contents: Sequence[PageContent]) -> tuple[dict[str, Any], list[str]]:
        """(metadata, warnings) that name the pages and count the figures whose text was not recognised."""
        missing = [content.number for content in contents if content.unrecognized]
        facts: dict[str, Any] = {}
        warnings: list[str] = []
        why = "they await text recognition" if self.postponed else "text recognition is off (--ocr, RAG_OCR)"
        if missing:
            facts["unrecognized_pages"] = missing
            if self.postponed:
                warnings.append(f"Page(s) {_ranges(missing)} were left out: {why}")
        if self.unread_figures:
            facts["unrecognized_pictures"] = self.unread_figures
            warnings.append(f"The text of {self.unread_figures} picture(s) was not read: {why}")
        return facts, warnings


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 7 -> "1-3, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _is_stamped(raw: RawPage, characters: int) -> bool:
    """Whether a picture too large (or beside too much text) to be read as a figure has all text in the margins."""
    share = picture_share(raw)
    if characters >= STAMP_CHARACTERS or share <= (0.5 if characters > MANY_CHARACTERS else figures.BACKGROUND):
        return False
    width, height = raw.space.width, raw.space.height
    edges = (ZONE * width, ZONE * height, (1 - ZONE) * width, (1 - ZONE) * height)
    return all(
        w.style.turn == SLANTED or w.x1 < edges[0] or w.y1 < edges[1] or w.x0 > edges[2] or w.y0 > edges[3]
        for w in raw.words
    ) and not any(w.style.invisible for w in raw.words)


def _garbage(raw: RawPage, characters: int) -> str:
    words = raw.words
    unmapped = sum(len(w.text) for w in words if w.style.font == "?")
    if unmapped > 0.4 * characters and characters > 8:
        return "has fonts without Unicode mapping"
    text = "".join(w.text for w in words)
    data = text.encode("ascii", "ignore")
    strange = len(data) - len(data.translate(None, _CONTROLS))
    if len(data) < len(text):
        strange += len(_PRIVATE.findall(text))
        western = len(_WESTERN.findall(text)) > 0.45 * characters and characters > 40
        if western or 3 * len(_REPLACED.findall(text)) > 0.05 * characters:
            return "has a text layer in a wrong encoding"
    if strange > 0.3 * characters and characters > 8:
        return "has a text layer of private characters"
    letters = data.translate(None, _NO_LETTERS)
    vowels = len(letters) - len(letters.translate(None, _VOWELS))
    plain = len(data) > 0.95 * len(text) and len(letters) > max(100, 0.6 * characters)
    if plain and vowels < FEW_VOWELS * len(letters):
        return "has a text layer of shifted letters"
    return ""
