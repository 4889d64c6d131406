"""Which parser reads which file. Parsers are imported when their first file comes, so that TXT never loads OCR.

A new format is one module and one line in BUILT_IN, or `.ext: module:Class` in the settings.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from rag_cluster.domain.ports import DocumentParser
from rag_cluster.errors import InvalidSettingError, MissingDependencyError, UnsupportedDocumentTypeError
from rag_cluster.parsing.legacy import CONVERTED, LibreOfficeParser, program
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode, RapidOcr

_MODULES = {
    "rag_cluster.parsing.pdf.parser:PdfParser": ".pdf",
    "rag_cluster.parsing.docx:DocxParser": ".docx .docm .dotx .dotm",
    "rag_cluster.parsing.xlsx:XlsxParser": ".xlsx .xlsm .xltx .xltm",
    "rag_cluster.parsing.xls:XlsParser": ".xls .xlt .xlsb",
    "rag_cluster.parsing.pptx:PptxParser": ".pptx .pptm .ppsx .ppsm .potx .potm",
    "rag_cluster.parsing.html:HtmlParser": ".html .htm .xhtml",
    "rag_cluster.parsing.markdown:MarkdownParser": ".md .markdown",
    "rag_cluster.parsing.csv:CsvParser": ".csv .tsv .tab",
    "rag_cluster.parsing.text:TextParser": ".txt .text .log",
    "rag_cluster.parsing.images:ImageParser": ".png .jpg .jpeg .tif .tiff .webp .gif .bmp",
}
BUILT_IN: Mapping[str, str] = {ext: target for target, exts in _MODULES.items() for ext in exts.split()}
"""Extension -> module:Class."""
LEGACY = "rag_cluster.parsing.legacy:LibreOfficeParser"


@dataclass(frozen=True, slots=True)
class ParserInfo:
    """What the content fingerprint needs to know of a parser, without making one."""

    name: str
    version: str
    """The parser's version; recognition by force is part of it: it reads what is otherwise taken as it is."""
    target: str
    """module:Class."""
    recognition: str = ""
    """auto | off | force for a parser that can recognise text, "" for one that never does."""
    only_recognition: bool = False
    """Without recognition nothing comes out: pictures."""


@dataclass(frozen=True, slots=True)
class ParserRegistry:
    """Extension -> parser. Picklable. `parsers` adds to and overrides the built-in ones."""

    parsers: Mapping[str, str] = field(default_factory=dict)
    limits: ParseLimits = ParseLimits()
    ocr: OcrMode = OcrMode.AUTO
    ocr_threads: int = 2
    ocr_gpu: bool = False
    postpone_ocr: bool = False
    """Parsers get no recogniser: they say what awaits recognition (`ParsedDocument.unrecognized`)."""
    libreoffice: str = ""
    """"true" or the path of soffice: what is in `legacy.CONVERTED` is read too."""

    def __post_init__(self) -> None:
        for key, target in self.parsers.items():
            if not key.startswith(".") or target.count(":") != 1:
                raise InvalidSettingError(f"parsers must map '.ext' to 'module:Class', not {key!r} to {target!r}")

    @property
    def extensions(self) -> frozenset[str]:
        """All that can be parsed, lower case with the dot."""
        converted = frozenset(extension for extension in CONVERTED if self._converts(extension))
        return frozenset(BUILT_IN) | {key.lower() for key in self.parsers} | converted

    def target(self, filename: str) -> str:
        """module:Class for a file name. UnsupportedDocumentTypeError names the extension."""
        extension = extension_of(filename)
        added = {key.lower(): value for key, value in self.parsers.items()}
        target = added.get(extension) or BUILT_IN.get(extension)
        if target is None and extension in CONVERTED:
            program(self.libreoffice, extension)
            return LEGACY
        if target is None:
            what = f"files of type {extension!r}" if extension else "files without an extension"
            raise UnsupportedDocumentTypeError(f"There is no parser for {what} ({filename!r})")
        return target

    def info(self, filename: str) -> ParserInfo:
        """Name and version of the parser for a file name. UnsupportedDocumentTypeError, MissingDependencyError."""
        target = self.target(filename)
        if target == LEGACY:
            inner = self.info(_converted_name(filename))
            name, version = LibreOfficeParser.name, LibreOfficeParser.version
            return replace(inner, name=f"{name}+{inner.name}", version=f"{version}+{inner.version}", target=target)
        cls = _load(target)
        if "ocr" not in _arguments(target):
            return ParserInfo(cls.name, cls.version, target)
        # Deferred recognition gives the same in the end.
        mode = OcrMode.AUTO if self.ocr is OcrMode.DEFERRED else self.ocr
        version = f"{cls.version}/ocr-force" if mode is OcrMode.FORCE else cls.version
        return ParserInfo(cls.name, version, target, mode.value, getattr(cls, "only_recognition", False))

    def parser_for(self, filename: str) -> DocumentParser:
        """A parser for a file name, given the limits and, where it takes them, the OCR mode and recogniser."""
        target = self.target(filename)
        if target == LEGACY:
            extension = extension_of(filename)
            inner = self.parser_for(_converted_name(filename))
            return LibreOfficeParser(inner, extension, program(self.libreoffice, extension), self.limits)
        later = self.postpone_ocr or self.ocr in (OcrMode.OFF, OcrMode.DEFERRED)
        offered: dict[str, Any] = {
            "limits": self.limits,
            "ocr": self.ocr,
            "recognizer": None if later else RapidOcr(self.ocr_threads, gpu=self.ocr_gpu),
        }
        accepted = _arguments(target)
        parser: DocumentParser = _load(target)(**{key: value for key, value in offered.items() if key in accepted})
        return parser

    def _converts(self, extension: str) -> bool:
        try:
            return bool(program(self.libreoffice, extension))
        except UnsupportedDocumentTypeError:
            return False


def extension_of(filename: str) -> str:
    """Lower case with the dot; "" without one."""
    return PurePath(filename.replace("\\", "/")).suffix.lower()


def _converted_name(filename: str) -> str:
    return f"converted{CONVERTED[extension_of(filename)]}"


@lru_cache(maxsize=64)
def _load(target: str) -> Any:
    module_name, class_name = target.split(":")
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except ImportError as error:
        raise MissingDependencyError(f"The parser {target} cannot be imported: {error}") from error
    except AttributeError as error:
        raise InvalidSettingError(f"{module_name} has no class {class_name}") from error


@lru_cache(maxsize=64)
def _arguments(target: str) -> frozenset[str]:
    return frozenset(inspect.signature(_load(target)).parameters)
