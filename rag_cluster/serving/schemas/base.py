"""What all requests and responses share: names, plain values, errors, health."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from rag_cluster.domain.access import MAX_ACL_BYTES
from rag_cluster.domain.plain_values import check_metadata, check_plain

MAX_NAME = 200
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME)]
Group = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


def _indexable(acl: list[str]) -> list[str]:
    if sum(len(group.encode()) + 8 for group in acl) > MAX_ACL_BYTES:
        raise ValueError(f"the groups together must not be longer than {MAX_ACL_BYTES:,} bytes")
    return acl


Acl = Annotated[list[Group], AfterValidator(_indexable)]
Department = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Metadata = Annotated[dict[str, Any], AfterValidator(check_metadata)]


def _addressable(name: str) -> str:
    """A new name must be usable as a path segment, and look like what it is."""
    if "/" in name or "\\" in name or name in (".", ".."):
        raise ValueError("must not contain a slash, nor be '.' or '..'")
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in name):
        raise ValueError("must not contain control characters")
    return name


NewName = Annotated[Name, AfterValidator(_addressable)]


class RequestModel(BaseModel):
    """Requests refuse unknown fields, so that a typing mistake is not silently ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    _plain = model_validator(mode="before")(check_plain)


class ErrorBody(BaseModel):
    """What went wrong."""

    code: int = Field(description="Stable numeric code.")
    type: str = Field(description="Stable type.")
    message: str
    request_id: str


def binary(description: str, *media_types: str) -> dict[int | str, dict[str, Any]]:
    """`responses=` of a route that answers with bytes."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in media_types}
    return {200: {"description": description, "content": content}}


class ErrorResponse(BaseModel):
    """Every error has this form."""

    error: ErrorBody


class HealthResponse(BaseModel):
    """The process answers."""

    status: str


class ReadyResponse(BaseModel):
    """Which dependencies answer; 503 unless all do."""

    status: str
    checks: dict[str, str]


class ModelResponse(BaseModel):
    """A model and the counters of its replicas; null when they did not answer, empty where it is no deployment."""

    role: str
    engine: str
    replicas: list[dict[str, Any]] | None


class ModelsResponse(BaseModel):
    """What computes: embedder, reranker, generator."""

    models: list[ModelResponse]
