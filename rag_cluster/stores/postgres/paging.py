"""Keyset pages: a cursor is the place after the last row shown, so that inserts and deletes never shift a page."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from rag_cluster.errors import InvalidRequestError
from rag_cluster.stores.postgres.adapters import known_uuid

T = TypeVar("T")
MAX_LIMIT = 1000


def page_values(cursor: str | None, limit: int) -> dict[str, Any]:
    """Bound values of a page's statement: after_time, after_id (None on the first page), fetch.

    One row more than asked is fetched: it tells whether there is a next page. InvalidRequestError for a cursor that
    no list returned, or a limit out of range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequestError(f"limit must be 1-{MAX_LIMIT}, not {limit}")
    after_time, after_id = (None, None) if cursor is None else _decode(cursor)
    return {"after_time": after_time, "after_id": after_id, "fetch": limit + 1}


def page(
    rows: Sequence[dict[str, Any]], limit: int, make: Callable[[dict[str, Any]], T], time_column: str = "created_at"
) -> tuple[list[T], str | None]:
    """(items, next cursor) of the fetched rows, which carry the time column and id."""
    shown = rows[:limit]
    cursor = _encode(shown[-1][time_column], shown[-1]["id"]) if len(rows) > limit else None
    return [make(row) for row in shown], cursor


def _encode(time: datetime, row_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([time.isoformat(), row_id]).encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[datetime, str]:
    try:
        time, row_id = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
        parsed, known = datetime.fromisoformat(time), known_uuid(row_id)
    except (ValueError, TypeError, AttributeError, binascii.Error):
        known = None
    if known is None:
        raise InvalidRequestError("the cursor is not one that this list returned")
    return parsed, known
