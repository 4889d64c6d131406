"""Keys of our own objects: `{kb}/{document}/{version}/source{ext}` and what lies beside it (design section 4).

Everything of a version stands below `version_prefix`, everything of a document below `document_prefix`, so that a
delete is one prefix and an original is found from facts alone.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SAFE_SUFFIX = re.compile(r"\.[a-z0-9]{1,16}")


def document_prefix(knowledge_base_id: str, document_id: str) -> str:
    """Prefix of everything that a document owns, ending in "/"."""
    return f"{knowledge_base_id}/{document_id}/"


def version_prefix(knowledge_base_id: str, document_id: str, version: int) -> str:
    """Prefix of everything that one version owns, ending in "/"."""
    return f"{document_prefix(knowledge_base_id, document_id)}{version}/"


def source_key(knowledge_base_id: str, document_id: str, version: int, filename: str) -> str:
    """Key of the original. Of the file's name only a harmless extension is kept."""
    suffix = PurePosixPath(filename).suffix.lower()
    extension = suffix if _SAFE_SUFFIX.fullmatch(suffix) else ""
    return source_prefix(knowledge_base_id, document_id, version) + extension


def source_prefix(knowledge_base_id: str, document_id: str, version: int) -> str:
    """What the original's key begins with, whatever its extension."""
    return f"{version_prefix(knowledge_base_id, document_id, version)}source"


def asset_key(knowledge_base_id: str, document_id: str, version: int, asset_id: str) -> str:
    """Key of one asset; its media type is a fact in PostgreSQL."""
    return f"{version_prefix(knowledge_base_id, document_id, version)}assets/{asset_id}"


def snapshot_prefix(knowledge_base_id: str, document_id: str, version: int) -> str:
    """Prefix of a version's snapshot."""
    return f"{version_prefix(knowledge_base_id, document_id, version)}snapshot/"


def owner_of(key: str) -> tuple[str, str] | None:
    """(knowledge base, document) whose prefix a key stands under; None for every other key."""
    parts = key.split("/", 2)
    if len(parts) == 3 and all(_ID.fullmatch(part) for part in parts[:2]):
        return parts[0], parts[1]
    return None
