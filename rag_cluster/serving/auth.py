"""Who is asking. With API keys configured every route under /v1 needs one; without, the server is local only."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from rag_cluster.domain.access import LOCAL, Principal
from rag_cluster.errors import AuthenticationError, ForbiddenError
from rag_cluster.serving.backend import Backend


def backend(request: Request) -> Backend:
    """The application's services."""
    services: Backend = request.app.state.backend
    return services


def principal(request: Request, services: Annotated[Backend, Depends(backend)]) -> Principal:
    """The caller. Runs in the thread pool, as resolving a key is a PostgreSQL statement."""
    header = request.headers.get("authorization", "")
    scheme, _, secret = header.partition(" ")
    if secret and scheme.lower() == "bearer":
        return services.catalog.resolve_api_key(secret.strip())
    if header:
        raise AuthenticationError("Send the API key as 'Authorization: Bearer KEY'.")
    if services.catalog.has_api_keys():
        raise AuthenticationError("This server needs an API key: 'Authorization: Bearer KEY'.")
    return LOCAL


def administrator(caller: Annotated[Principal, Depends(principal)]) -> Principal:
    """A caller that may change knowledge bases, access and documents."""
    if not caller.unrestricted:
        raise ForbiddenError("This needs an unrestricted API key.")
    return caller


Caller = Annotated[Principal, Depends(principal)]
Administrator = Annotated[Principal, Depends(administrator)]
Services = Annotated[Backend, Depends(backend)]
