"""Requests to /v1 as calls: a model comes back, or the server's own error is raised as its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel

from rag_cluster.errors import InvalidRequestError, SourceUnavailableError, error_types
from rag_cluster.serving.schemas import DocumentPage, KnowledgeBasePage, RunPage

Model = TypeVar("Model", bound=BaseModel)
Page = TypeVar("Page", bound=DocumentPage | KnowledgeBasePage | RunPage)

CONNECT_SECONDS = 10.0
READ_SECONDS = 120.0
"""Above the server's own deadline of a request, whose error says more."""
PAGE = 200
"""Rows asked for at once; the most that /v1 gives."""


def connect(url: str, api_key: str | None = None) -> Api:
    """An `Api` of a running server, http://HOST:PORT. Sends nothing yet. InvalidRequestError."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL:
        base = httpx.URL()
    if base.scheme not in ("http", "https") or not base.host:
        raise InvalidRequestError(f"A server's URL is http://HOST:PORT, not {url!r}.")
    return Api(
        httpx.Client(base_url=base, headers=headers, timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)), url
    )


def segment(name: str) -> str:
    """A name or id as one segment of a path."""
    return quote(name, safe="")


class Api:
    """One server. `name` stands in error messages."""

    def __init__(self, client: httpx.Client, name: str) -> None:
        self._client = client
        self.name = name

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str, model: type[Model], **parameters: Any) -> Model:
        """GET; parameters of None are left out."""
        given = {name: value for name, value in parameters.items() if value is not None}
        return model.model_validate(self.request("GET", path, params=given))

    def listed(self, path: str, page: type[Page], limit: int, **parameters: Any) -> Page:
        """The pages of a list as one, `limit` rows at most."""
        rows: list[Any] = []
        cursor: str | None = None
        while True:
            found = self.get(path, page, limit=min(limit - len(rows), PAGE), cursor=cursor, **parameters)
            rows, cursor = [*rows, *found.items], found.next_cursor
            if cursor is None or len(rows) >= limit:
                whole: Any = page.model_validate({"items": rows, "next_cursor": cursor})
                return whole  # type: ignore[no-any-return]

    def post(self, path: str, model: type[Model], body: Mapping[str, Any] | None = None) -> Model:
        """POST a JSON body."""
        return model.model_validate(self.request("POST", path, json=body))

    def delete(self, path: str, model: type[Model]) -> Model:
        """DELETE."""
        return model.model_validate(self.request("DELETE", path))

    def request(self, method: str, path: str, **arguments: Any) -> Any:
        """The answer's JSON. The error that the server names; SourceUnavailableError when there is no proper answer."""
        if self._client.is_closed:
            raise InvalidRequestError("This client was closed; make a new one.")
        try:
            response = self._client.request(method, path, **arguments)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise SourceUnavailableError(f"No answer from {self.name}: {reason}. Is the server running?") from None
        return self._content(response)

    def _content(self, response: httpx.Response) -> Any:
        try:
            answer = response.json()
            if response.is_success:
                return answer
            kind, message = str(answer["error"]["type"]), str(answer["error"]["message"])
        except (ValueError, KeyError, TypeError):
            raise SourceUnavailableError(
                f"{self.name} answered {response.status_code}, but not as rag_cluster does."
            ) from None
        if kind not in error_types() or kind == "internal_error":
            raise SourceUnavailableError(f"{self.name} failed: {message}")
        raise error_types()[kind](message, retry_after=_seconds(response.headers.get("retry-after")))


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isdecimal() else None
