"""Office Open XML packages: checked opening, parts, relationships, one set of namespaces for strict and usual files."""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from lxml import etree

from rag_cluster.domain.blocks import DocumentSource
from rag_cluster.errors import CorruptDocumentError, EncryptedDocumentError, UnsupportedDocumentTypeError
from rag_cluster.parsing.archive import check_archive, parse_xml
from rag_cluster.parsing.limits import ParseLimits, check_file_size

_SCHEMAS = "http://schemas.openxmlformats.org/"
NAMESPACES: Mapping[str, str] = {
    "a": f"{_SCHEMAS}drawingml/2006/main",
    "c": f"{_SCHEMAS}drawingml/2006/chart",
    "cx": "http://schemas.microsoft.com/office/drawing/2014/chartex",
    "dgm": f"{_SCHEMAS}drawingml/2006/diagram",
    "adec": "http://schemas.microsoft.com/office/drawing/2017/decorative",
    "m": f"{_SCHEMAS}officeDocument/2006/math",
    "mc": f"{_SCHEMAS}markup-compatibility/2006",
    "p": f"{_SCHEMAS}presentationml/2006/main",
    "pic": f"{_SCHEMAS}drawingml/2006/picture",
    "r": f"{_SCHEMAS}officeDocument/2006/relationships",
    "rel": f"{_SCHEMAS}package/2006/relationships",
    "s": f"{_SCHEMAS}spreadsheetml/2006/main",
    "v": "urn:schemas-microsoft-com:vml",
    "w": f"{_SCHEMAS}wordprocessingml/2006/main",
    "w14": "http://schemas.microsoft.com/office/word/2010/wordml",
    "wp": f"{_SCHEMAS}drawingml/2006/wordprocessingDrawing",
    "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    "xdr": f"{_SCHEMAS}drawingml/2006/spreadsheetDrawing",
}
OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_READ_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError)


@lru_cache(maxsize=1024)
def qn(name: str) -> str:
    """Clark name of a prefixed one: "w:p" -> "{http://...}p"."""
    prefix, _, local = name.partition(":")
    return f"{{{NAMESPACES[prefix]}}}{local}"


def local_name(element: Any) -> str:
    """Tag without its namespace."""
    return str(element.tag).rpartition("}")[2]


def find(element: Any, path: str) -> Any:
    """The element at a path of prefixed names, first child by first child, or None; None stays None."""
    for tag in _steps(path):
        if element is None:
            return None
        # Four times as fast as element.find(), of which a document of some pages needs ten thousand.
        element = next(element.iterchildren(tag), None)
    return element


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[str, ...]:
    return tuple(map(qn, path.split("/")))


def on_off(element: Any) -> bool | None:
    """A switch such as <w:b/>: True or False as written, None where it is absent."""
    if element is None:
        return None
    value = element.get(qn("w:val"), element.get("val", "1"))
    return value not in ("0", "false", "off", "none")


@dataclass(frozen=True, slots=True)
class Relationship:
    """A link of a part; type is the last word of its URI ("image"), target an absolute part name or an external URI."""

    type: str
    target: str
    external: bool


class Package:
    """An OPC package, read part by part. Its parts' strict namespaces are rewritten to the transitional ones.

    warn: told of parts that are damaged or missing and that the document can do without.
    """

    def __init__(self, source: DocumentSource, limits: ParseLimits, warn: Callable[[str], None]) -> None:
        check_file_size(source.path, source.filename, limits)
        _refuse_ole(source)
        self.names = check_archive(source.path, limits)
        self.limits = limits
        self._warn = warn
        self._damage = ""
        self._archive = zipfile.ZipFile(source.path)
        self._by_lower = {name.replace("\\", "/").lower(): name for name in self.names}
        self._relationships: dict[str, dict[str, Relationship]] = {}

    def __enter__(self) -> Package:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def has(self, part: str) -> bool:
        """Whether the part exists; part names ignore case."""
        return part.lower() in self._by_lower

    @contextmanager
    def open(self, part: str) -> Iterator[IO[bytes]]:
        """A part as a stream. CorruptDocumentError when it is absent or damaged."""
        try:
            with self._archive.open(self._by_lower[part.lower()]) as stream:
                yield stream
        except KeyError as error:
            raise CorruptDocumentError(f"The package lacks {part}") from error
        except _READ_ERRORS as error:
            if isinstance(error, RuntimeError) and "password" in str(error):
                raise EncryptedDocumentError(f"{part} is encrypted") from error
            raise CorruptDocumentError(f"{part} cannot be read: {error}") from error

    def read(self, part: str) -> bytes:
        """A part's bytes. CorruptDocumentError when it is absent or damaged."""
        with self.open(part) as stream:
            return stream.read()

    def xml(self, part: str) -> Any:
        """Root element of a part, without comments and processing instructions."""
        return _root(self.read(part))

    def optional_xml(self, part: str | None) -> Any:
        """Root element of a part that may be absent (None then). A damaged one counts as far as it can be read."""
        if not part or not self.has(part):
            return None
        try:
            content = self.read(part)
        except (CorruptDocumentError, EncryptedDocumentError) as error:
            self.damaged(f"A part of the file was left out: {error.message}")
            return None
        try:
            return _root(content)
        except CorruptDocumentError as error:
            self.damaged(f"{part} was read only in part: {error.message}")
        try:
            return _root(content, recover=True)
        except CorruptDocumentError:
            return None

    def damaged(self, message: str) -> None:
        """Something of the document cannot be read; the rest of it can."""
        self._damage = self._damage or message
        self._warn(message)

    def check_found(self, anything: bool) -> None:
        """CorruptDocumentError when nothing was found because parts are damaged: the document is not empty then."""
        if self._damage and not anything:
            raise CorruptDocumentError(self._damage)

    def relationships(self, part: str = "") -> Mapping[str, Relationship]:
        """Relationship id -> link of a part; "" is the package itself."""
        if part not in self._relationships:
            folder, name = posixpath.split(part)
            root = self.optional_xml(posixpath.join(folder, "_rels", f"{name}.rels"))
            self._relationships[part] = {} if root is None else dict(_links(root, folder))
        return self._relationships[part]

    def related(self, part: str, kind: str) -> str | None:
        """Name of the first existing part that a part is linked to by a type of relationship, or None."""
        return next((name for name in self.all_related(part, kind)), None)

    def all_related(self, part: str, kind: str) -> list[str]:
        """Names of all existing parts that a part is linked to by a type of relationship."""
        links = self.relationships(part).values()
        return [link.target for link in links if link.type == kind and not link.external and self.has(link.target)]

    def main_part(self, usual: str) -> str:
        """Name of the document's main part. CorruptDocumentError when neither the link nor the usual name is there."""
        part = self.related("", "officeDocument") or usual
        if not self.has(part):
            raise CorruptDocumentError(f"The package has no main document ({part})")
        return part

    def properties(self) -> dict[str, Any]:
        """Title, author, language and dates as the core properties state them."""
        root = self.optional_xml(self.related("", "core-properties") or "docProps/core.xml")
        names = {"title": "title", "creator": "author", "language": "language", "created": "created",
                 "modified": "modified", "subject": "subject", "keywords": "keywords"}  # fmt: skip
        found: dict[str, Any] = {}
        for element in () if root is None else root:
            text = (element.text or "").strip()
            if text and local_name(element) in names:
                found[names[local_name(element)]] = text
        return found


def _root(content: bytes, *, recover: bool = False) -> Any:
    if b"purl.oclc.org" in content[:20_000]:
        content = _STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/", content)
    root = parse_xml(content, recover=recover)
    if b"<!DOCTYPE" in content:
        for node in list(root.iter(etree.Entity)):
            _drop(node)
    return root


def alternatives(element: Any) -> list[Any]:
    """An mc:AlternateContent's branches: the richer choices first, then the fallback. Only one of them is shown."""
    return [child for child in element if local_name(child) in ("Choice", "Fallback")]


def _links(root: Any, folder: str) -> Iterator[tuple[str, Relationship]]:
    for element in root.iter(qn("rel:Relationship")):
        target = element.get("Target", "")
        external = element.get("TargetMode") == "External"
        if not external:
            target = posixpath.normpath(posixpath.join("/" + folder, unquote(target))).lstrip("/")
        kind = element.get("Type", "").rpartition("/")[2]
        yield element.get("Id", ""), Relationship(kind, target, external)


def _drop(node: Any) -> None:
    parent = node.getparent()
    if parent is None:
        return
    if node.tail:
        previous = node.getprevious()
        if previous is None:
            parent.text = (parent.text or "") + node.tail
        else:
            previous.tail = (previous.tail or "") + node.tail
    parent.remove(node)


def _refuse_ole(source: DocumentSource) -> None:
    # An encrypted office file is an OLE container with a stream of this name; others are the formats before 2007.
    with Path(source.path).open("rb") as file:
        head = file.read(8)
        if head != OLE_MAGIC:
            return
        encrypted = "EncryptedPackage".encode("utf-16-le") in file.read(8 * 1024 * 1024)
    if encrypted:
        raise EncryptedDocumentError(f"{source.filename!r} is protected by a password")
    raise UnsupportedDocumentTypeError(f"{source.filename!r} is an OLE file of an office program before 2007")
