"""Server-Sent Events: one `event:` and one `data:` line each, flushed as they come (design section 6)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""No cache and no proxy may hold an event back."""


class EventStreamResponse(StreamingResponse):
    """A stream that is closed, with all that it holds, the moment the client is gone: not when memory is tidied."""

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        super().__init__(events, media_type=MEDIA_TYPE, headers=HEADERS)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


def encode(event: str, data: Mapping[str, Any]) -> bytes:
    """One event. JSON escapes line breaks, so that data always fits one line."""
    return f"event: {event}\ndata: {json.dumps(data, ensure_ascii=False, default=str)}\n\n".encode()
