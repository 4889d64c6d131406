"""Deterministic identifiers and fingerprints (design section 3).

Every id is a uuid5 of what it names, so that each retry of a write is an upsert. Uploads alone get a random id.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any

NAMESPACE = uuid.UUID("6f2d1f0c-6a3e-5d0e-9a55-7261675f636c")
SCHEMA_VERSION = "1"
"""Version of the block and chunk schema. Raising it makes every document a new version at the next ingest."""

_as_json = json.JSONEncoder(ensure_ascii=False).encode
# One encoder for all: json.dumps makes a new one at every call with such an option.


def _uuid5(*parts: object) -> str:
    # A JSON list keeps ("a", "bc") and ("ab", "c") apart, whatever the parts contain.
    # surrogatepass: a file name that is not UTF-8 arrives with lone surrogates, which uuid.uuid5 refuses.
    name = _as_json([str(part) for part in parts]).encode(errors="surrogatepass")
    digest = hashlib.sha1(NAMESPACE.bytes + name, usedforsecurity=False).digest()
    # As uuid.UUID(bytes=digest[:16], version=5) writes it, in a third of the time.
    version, variant = digest[6] & 0x0F | 0x50, digest[8] & 0x3F | 0x80
    text = f"{digest[:6].hex()}{version:02x}{digest[7]:02x}{variant:02x}{digest[9:16].hex()}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def knowledge_base_id(name: str) -> str:
    """Id of a knowledge base: its name is unique."""
    return _uuid5("knowledge_base", name)


def source_id(knowledge_base: str, kind: str, name: str) -> str:
    """Id of a source inside a knowledge base."""
    return _uuid5("source", knowledge_base, kind, name)


def bulk_document_id(knowledge_base: str, uri: str) -> str:
    """Id of a bulk-ingested document: (knowledge base, source URI)."""
    return _uuid5("document", knowledge_base, uri)


def upload_document_id() -> str:
    """Random id of an uploaded document."""
    return str(uuid.uuid4())


def block_id(document: str, version: int, ordinal: int) -> str:
    """Id of the ordinal-th block (0-based) of a document version."""
    return _uuid5("block", document, version, ordinal)


def parent_id(document: str, version: int, fingerprint: str, index: int) -> str:
    """Id of the index-th parent (0-based) of a document version."""
    return _uuid5("parent", document, version, fingerprint, index)


def chunk_id(document: str, version: int, fingerprint: str, index: int, content: str) -> str:
    """Id of a chunk: (document, version, content fingerprint, index, content)."""
    return _uuid5("chunk", document, version, fingerprint, index, content)


def asset_id(document: str, sha256: str) -> str:
    """Id of an asset: (document, sha256 of its bytes), so the same picture is stored once per document."""
    return _uuid5("asset", document, sha256)


def fingerprint(**parts: Any) -> str:
    """Stable 16-hex-digit hash of named values (order does not matter)."""
    canonical = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()[:16]


def content_fingerprint(
    *,
    parser: str,
    parser_version: str,
    chunker: str,
    parameters: Mapping[str, Any],
    tokenizer: str,
    recognition: str = "",
) -> str:
    """What decides the chunks of given bytes. Another fingerprint is another version of the document.

    recognition: "" for a parser that recognises no text, else its mode, which stands behind the hash: "HASH+auto".
    A document in which there is nothing to recognise has the bare hash, which serves every mode (`serves`).
    """
    value = fingerprint(
        parser=parser,
        parser_version=parser_version,
        chunker=chunker,
        parameters=dict(parameters),
        tokenizer=tokenizer,
        schema=SCHEMA_VERSION,
    )
    return f"{value}+{recognition}" if recognition else value


def nothing_recognized(content_fingerprint: str) -> str:
    """Of a document in which there is nothing to recognise: the same for every mode but force."""
    return content_fingerprint.partition("+")[0]


def awaiting_recognition(content_fingerprint: str) -> str:
    """Of the version that holds a document's text until the rest is recognised; "" where there is no such version."""
    value, _, recognition = content_fingerprint.partition("+")
    return f"{value}+awaiting" if recognition and recognition != "off" else ""


def serves(stored: str | None, wanted: str) -> bool:
    """Whether a version with the stored content fingerprint is what one with the wanted fingerprint would be."""
    return stored in (wanted, nothing_recognized(wanted))
