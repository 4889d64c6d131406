"""What may be kept at all, whoever states it: text that PostgreSQL keeps as it is, numbers that JSON has.

NUL, lone surrogates, NaN, infinities and numbers beyond 64 bits would be stored as something else than was sent, or
fail in a store. They are refused here, once, for requests, form fields and manifests.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_DEPTH = 32
"""Of nested objects and lists; no request of ours needs more than a few."""
MAX_METADATA_BYTES = 65_536
"""Of a document's metadata as JSON: what a Milvus JSON field holds."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_INT64 = 2**63


def check_text(text: str) -> str:
    """The text. ValueError when it holds NUL or a lone surrogate."""
    if _UNSTORABLE.search(text):
        raise ValueError("must not contain NUL characters or lone surrogates")
    return text


def check_plain(value: Any) -> Any:
    """The JSON value. ValueError when something in it cannot be kept as it is."""
    waiting = [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, str):
            check_text(one)
        elif isinstance(one, float) and not math.isfinite(one):
            raise ValueError("numbers must be finite: NaN and Infinity are no JSON")
        elif isinstance(one, int) and not -_INT64 <= one < _INT64:
            raise ValueError("whole numbers must fit into 64 bits")
        elif isinstance(one, (dict, list)):
            if depth > MAX_DEPTH:
                raise ValueError(f"must not be nested more than {MAX_DEPTH} levels deep")
            inner = [*one, *one.values()] if isinstance(one, dict) else one
            waiting += [(item, depth + 1) for item in inner]
    return value


def check_metadata(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    """The metadata. ValueError when it is larger than the index can hold."""
    if metadata and len(json.dumps(metadata, ensure_ascii=False).encode()) > MAX_METADATA_BYTES:
        raise ValueError(f"must not be larger than {MAX_METADATA_BYTES:,} bytes as JSON")
    return metadata
