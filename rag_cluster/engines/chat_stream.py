"""A streamed chat completion: Server-Sent Events in, text out."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx

DONE = "[DONE]"


class BrokenStream(Exception):
    """The stream ended before the answer did, holds what is none of the protocol's, or an error of the endpoint's."""


class ChatStream:
    """The answer of one open response. `deltas` is read once; closing it closes the connection."""

    def __init__(self, response: httpx.Response, *, max_bytes: int) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self.finish_reason = ""
        """Once all deltas are read: "stop", "length" where max_tokens ended the answer, or another."""
        self.prompt_tokens = 0
        self.completion_tokens = 0
        """Both as the endpoint says; 0 where it does not."""

    async def deltas(self) -> AsyncGenerator[str]:
        """Texts, none of them empty. BrokenStream, httpx.HTTPError."""
        async with aclosing(self._events()) as events:
            async for event in events:
                if text := self._read(event):
                    yield text
        if not self.finish_reason:
            raise BrokenStream("the answer broke off")

    async def aclose(self) -> None:
        """Give the connection up. Safe at any time, and twice."""
        await self._response.aclose()

    def _read(self, event: dict[str, Any]) -> str:
        """An event's text; what it says beside that is kept."""
        if error := event.get("error"):
            raise BrokenStream(f"the endpoint failed: {str(error)[:300]}")
        if isinstance(usage := event.get("usage"), dict):
            self.prompt_tokens = _count(usage.get("prompt_tokens"))
            self.completion_tokens = _count(usage.get("completion_tokens"))
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices:  # the last event of the usage has none
            return ""
        try:
            choice = choices[0]
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            text = (choice.get("delta") or {}).get("content")
        except (AttributeError, TypeError):
            raise BrokenStream(f"this is no event of a chat completion: {str(event)[:300]}") from None
        return text if isinstance(text, str) else ""

    async def _events(self) -> AsyncGenerator[dict[str, Any]]:
        async with aclosing(self._lines()) as lines:
            async for line in lines:
                field, _, value = line.partition(":")
                if field != "data":  # a comment that keeps the connection alive, an event's name, a blank line
                    continue
                if value.strip() == DONE:
                    return
                yield _parsed(value)

    async def _lines(self) -> AsyncGenerator[str]:
        held, size = b"", 0
        async with aclosing(self._response.aiter_bytes()) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                size += len(chunk)
                if size > self._max_bytes:
                    raise BrokenStream(f"an answer of more than {self._max_bytes} bytes")
                *lines, held = (held + chunk).split(b"\n")
                for line in lines:
                    yield line.decode("utf-8", "replace").rstrip("\r")
        if held:
            yield held.decode("utf-8", "replace").rstrip("\r")


def _parsed(value: str) -> dict[str, Any]:
    try:
        event = json.loads(value)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise BrokenStream(f"this is no event of a chat completion: {value[:300]}")
    return event


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
