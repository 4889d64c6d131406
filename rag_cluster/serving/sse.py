"""Server-Sent Events: one `event:` and one `data:` line each, flushed as they come (design section 6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""No cache and no proxy may hold an event back."""


def encode(event: str, data: Mapping[str, Any]) -> bytes:
    """One event. JSON escapes line breaks, so that data always fits one line."""
    return f"event: {event}\ndata: {json.dumps(data, ensure_ascii=False, default=str)}\n\n".encode()
