"""ZIP-based formats, checked before anything is expanded, and XML that cannot reach outside its document."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from rag_cluster.errors import CorruptDocumentError, DocumentTooLargeError
from rag_cluster.parsing.limits import MIB, ParseLimits

MAX_MEMBERS = 100_000
SMALL = 16 * MIB
"""Below this an archive may expand as far as it likes: an empty sheet of many rows compresses 1000 times."""


def check_archive(path: str, limits: ParseLimits) -> frozenset[str]:
    """Member names of a ZIP file, after its directory was checked; nothing is expanded.

    CorruptDocumentError when it is no readable ZIP, names members outside itself or has members that share bytes (as a
    bomb's do, whose ratio looks harmless then); DocumentTooLargeError when it declares too many members, too many
    expanded bytes or too high a ratio. zipfile itself stops a member that expands beyond its declared size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, zipfile.LargeZipFile, ValueError, NotImplementedError, OSError, EOFError) as error:
        raise CorruptDocumentError(f"The file is not a readable ZIP archive: {error}") from error
    if len(members) > MAX_MEMBERS:
        raise DocumentTooLargeError(f"The archive has {len(members)} members; the limit is {MAX_MEMBERS}")
    expanded = sum(member.file_size for member in members)
    stored = sum(member.compress_size for member in members)
    if expanded > limits.max_expanded_bytes:
        raise DocumentTooLargeError(
            f"The archive expands to {expanded} bytes; the limit is {limits.max_expanded_bytes}"
        )
    if expanded > SMALL and expanded > stored * limits.max_expansion_ratio:
        raise DocumentTooLargeError(
            f"The archive expands {expanded // max(stored, 1)} times; the limit is {limits.max_expansion_ratio}"
        )
    for member in members:
        name = member.filename.replace("\\", "/")
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise CorruptDocumentError(f"The archive names a member outside itself: {member.filename!r}")
    _check_overlap(members)
    return frozenset(member.filename for member in members)


def _check_overlap(members: Sequence[zipfile.ZipInfo]) -> None:
    """Some programs list a member twice; that is two entries for the same bytes, and harmless."""
    distinct = {(member.header_offset, member.filename): member for member in members}
    end = 0
    for (offset, name), member in sorted(distinct.items()):
        if offset < end:
            raise CorruptDocumentError(f"The archive's members share bytes: {name!r}")
        end = offset + zipfile.sizeFileHeader + member.compress_size  # type: ignore[attr-defined]


def read_member(path: str, name: str, limit: int = 16 * MIB) -> bytes | None:
    """One member's bytes; None when it is absent. DocumentTooLargeError above `limit` bytes."""
    try:
        with zipfile.ZipFile(path) as archive:
            try:
                info = archive.getinfo(name)
            except KeyError:
                return None
            if info.file_size > limit:
                raise DocumentTooLargeError(f"{name} has {info.file_size} bytes; the limit is {limit}")
            with archive.open(info) as member:
                return member.read(limit)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise CorruptDocumentError(f"{name} cannot be read from the archive: {error}") from error


@lru_cache(maxsize=2)
def xml_parser(*, recover: bool = False) -> Any:
    """An lxml parser without entities, DTDs, network or huge trees, that leaves out comments and instructions.

    recover: go on after a mistake.
    """
    from lxml import etree

    return etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        recover=recover,
    )


def parse_xml(content: bytes, *, recover: bool = False) -> Any:
    """The root element. CorruptDocumentError when it is not well formed."""
    from lxml import etree

    try:
        root = etree.fromstring(content, xml_parser(recover=recover))
    except etree.XMLSyntaxError as error:
        raise CorruptDocumentError(f"The XML is not well formed: {error}") from error
    if root is None:
        raise CorruptDocumentError("The XML holds no element")
    return root
