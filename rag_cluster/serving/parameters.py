"""One look at every request before its route: the body's type, and parameters that are unknown, repeated or unclean.

Bodies refuse unknown fields by their models; this does the same for query parameters and forms, so that a typing
mistake is not silently ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fastapi import Request, params
from fastapi.dependencies.models import Dependant
from starlette.exceptions import HTTPException

from rag_cluster.domain.plain_values import check_text
from rag_cluster.errors import InvalidRequestError

JSON_TYPE = "application/json"
FORM_TYPE = "multipart/form-data"


async def check_parameters(request: Request) -> None:
    """A dependency of every route. InvalidRequestError, or 415 for a body of another type than the route takes."""
    dependant: Dependant = request.scope["route"].dependant
    for name, value in [*request.path_params.items(), *request.query_params.multi_items()]:
        _check_clean(name, str(value))
    for field in dependant.header_params:
        _check_names("header", [field.alias for _ in request.headers.getlist(field.alias)], {field.alias})
    known = {field.alias for field in dependant.query_params}
    _check_names("query parameter", [name for name, _ in request.query_params.multi_items()], known)
    if dependant.body_params:
        form = any(isinstance(field.field_info, params.Form) for field in dependant.body_params)
        _check_type(request, FORM_TYPE if form else JSON_TYPE)
        if form:
            await _check_form(request, {field.alias for field in dependant.body_params})


def _check_type(request: Request, wanted: str) -> None:
    header = request.headers.get("content-type", "")
    given = header.partition(";")[0].strip().lower()
    if given != wanted:
        raise HTTPException(415, f"Send the body as Content-Type: {wanted}, not {given[:100] or 'none'}.")


async def _check_form(request: Request, known: set[str]) -> None:
    items = (await request.form()).multi_items()  # read already, for the route
    _check_names("form field", [name for name, _ in items], known)
    for name, value in items:
        if isinstance(value, str):
            _check_clean(name, value)


def _check_names(kind: str, names: Iterable[str], known: set[str]) -> None:
    for name, count in Counter(names).items():
        if name not in known:
            choices = ", ".join(sorted(known)) or "none"
            raise InvalidRequestError(f"There is no {kind} {name[:100]!r} here (known: {choices}).")
        if count > 1:
            raise InvalidRequestError(f"The {kind} {name!r} came {count} times.")


def _check_clean(name: str, value: str) -> None:
    try:
        check_text(value)
    except ValueError as error:
        raise InvalidRequestError(f"{name[:100]}: {error}") from None
    if "\ufffd" in value:  # what decoding puts in the place of bytes that are no UTF-8
        raise InvalidRequestError(f"{name[:100]}: is not valid UTF-8")
