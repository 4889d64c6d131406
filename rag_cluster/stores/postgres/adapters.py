"""How values travel to PostgreSQL: any text, any JSON, ids as plain strings.

PostgreSQL stores neither NUL nor lone surrogates, and both occur in extracted text. They become U+FFFD on the way in,
one for one, so that character offsets stay true. Done here once, no statement has to think of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg.types.string import StrDumper, StrDumperUnknown, TextLoader

from rag_cluster.errors import NotFoundError

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_DECODER = json.JSONDecoder()


def storable(text: str) -> str:
    """The text as PostgreSQL can hold it; same length."""
    return _UNSTORABLE.sub(_REPLACEMENT, text)


def storable_json(value: Any) -> Any:
    """JSON-compatible value as PostgreSQL can hold it: storable texts, no NaN or infinity, lists for sequences."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(key)): storable_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [storable_json(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _foreign(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "item"):  # a numpy scalar
        return value.item()
    return str(value)


def dump_json(value: Any) -> str:
    """JSON text that PostgreSQL accepts. The clean case, nearly all of them, is serialised once."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_foreign)
        text.encode()
    except ValueError:  # NaN, or UnicodeEncodeError: a lone surrogate
        text = "\\u0000"
    if "\\u0000" in text:
        text = json.dumps(storable_json(value), ensure_ascii=False, default=_foreign)
    return text


def load_json(data: str | bytes) -> Any:
    """JSON as PostgreSQL prints it: UTF-8 without white space around, so that nothing has to be detected."""
    return _DECODER.raw_decode(data if isinstance(data, str) else bytes(data).decode())[0]


def _storable_bytes(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = storable(text).encode()
    return data.replace(b"\x00", _REPLACEMENT.encode()) if b"\x00" in data else data


class _TextDumper(StrDumper):
    def dump(self, obj: str) -> bytes:
        return _storable_bytes(obj)


class _UnknownDumper(StrDumperUnknown):
    def dump(self, obj: str) -> bytes:
        return _storable_bytes(obj)


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(str, _TextDumper)
    adapters.register_dumper(str, _UnknownDumper)  # the last one registered is the default
    adapters.register_loader("uuid", TextLoader)
    set_json_dumps(dump_json, adapters)
    set_json_loads(load_json, adapters)
    return adapters


ADAPTERS = _adapters()


def as_uuid(value: str, what: str) -> str:
    """The canonical form of an id. NotFoundError when it is none: nothing can be there under it."""
    found = known_uuid(value)
    if found is None:
        raise NotFoundError(f"no {what} {value[:64]!r}")
    return found


def known_uuid(value: str) -> str | None:
    """The canonical form of an id, or None when it is none."""
    try:
        return str(UUID(value))
    except ValueError:
        return None


def known_uuids(values: tuple[str, ...] | None) -> list[str] | None:
    """Canonical ids without those that are none (they name nothing); None stays None."""
    return None if values is None else [found for value in values if (found := known_uuid(value)) is not None]
