"""What the parsers of formats with pictures share, and of pictures themselves."""

from __future__ import annotations

from rag_cluster.domain.blocks import DocumentSource
from rag_cluster.domain.ports import TextRecognizer
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.pictures import PictureReader


class IllustratedParser:
    """Made with limits, and with what reads the text in pictures. recognizer: None counts those that await it."""

    def __init__(
        self,
        limits: ParseLimits = ParseLimits(),
        *,
        ocr: OcrMode = OcrMode.AUTO,
        recognizer: TextRecognizer | None = None,
    ) -> None:
        self._limits = limits
        self._ocr = ocr
        self._recognizer = recognizer

    def _builder(self, source: DocumentSource) -> BlockBuilder:
        """For the blocks of one document, whose pictures it reads."""
        return BlockBuilder(source, PictureReader(self._limits, self._ocr, self._recognizer))
