"""Who is asking. With API keys configured every route under /v1 needs one; without, the server is local only."""

from __future__ import annotations

import ipaddress
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request

from rag_cluster.domain.access import LOCAL, Principal
from rag_cluster.errors import AuthenticationError, ForbiddenError
from rag_cluster.serving.backend import Backend


async def backend(request: Request) -> Backend:
    """The application's services. Asynchronous, as all dependencies that do not wait: others cost a thread."""
    services: Backend = request.app.state.backend
    return services


def principal(request: Request, services: Annotated[Backend, Depends(backend)]) -> Principal:
    """The caller. Runs in the thread pool, as resolving a key is a PostgreSQL statement."""
    if services.caller is not None:
        return services.caller
    secret = secret_of(request)
    if secret is not None:
        return services.catalog.resolve_api_key(secret)
    return without_key(request, has_api_keys=services.catalog.has_api_keys())


def secret_of(request: Request) -> str | None:
    """The API key that the request brings. AuthenticationError for a header that is there and brings none."""
    header = request.headers.get("authorization", "")
    scheme, _, secret = header.partition(" ")
    if secret and scheme.lower() == "bearer":
        return secret.strip()
    if header:
        raise AuthenticationError("Send the API key as 'Authorization: Bearer KEY'.")
    return None


def without_key(request: Request, *, has_api_keys: bool) -> Principal:
    """Who asks without a key: AuthenticationError where there are keys, ForbiddenError from elsewhere."""
    if has_api_keys:
        raise AuthenticationError("This server needs an API key: 'Authorization: Bearer KEY'.")
    require_local(request)
    return LOCAL


def require_local(request: Request) -> None:
    """ForbiddenError unless the request comes from this machine and was meant for it.

    Without API keys this is the only fence, whatever address Serve's configuration binds. The address is the
    connection's own, as Serve's proxy saw it: uvicorn replaces it by X-Forwarded-For only for connections from
    loopback, so that header can take the right away but never give it. Host and Origin keep out web pages of other
    sites that a browser on this machine has open.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if request.client is None or not _loopback(request.client.host):
        raise ForbiddenError(
            "Without an API key only this machine is served: 'rag-cluster keys create NAME' makes one."
        )
    if not _loopback(_hostname(f"//{host}")) or (origin is not None and not _loopback(_hostname(origin))):
        raise ForbiddenError("Without an API key only requests to and from localhost are served, by name too.")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def administrator(caller: Annotated[Principal, Depends(principal)]) -> Principal:
    """A caller that may change knowledge bases, access and documents."""
    if not caller.unrestricted:
        raise ForbiddenError("This needs an unrestricted API key.")
    return caller


Caller = Annotated[Principal, Depends(principal)]
Administrator = Annotated[Principal, Depends(administrator)]
Services = Annotated[Backend, Depends(backend)]
