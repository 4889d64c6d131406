"""How commands speak: tables for people, `--json` for programs, errors that say what to do, an exit code that tells."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from rag_cluster.errors import InternalError, RagClusterError

out = Console(soft_wrap=False)
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]

F = TypeVar("F", bound=Callable[..., Any])


def emit(value: Mapping[str, Any]) -> None:
    """One line of JSON on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A table for people."""
    view = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        view.add_column(column, overflow="fold")
    for row in rows:
        view.add_row(*("" if cell is None else str(cell) for cell in row))
    out.print(view)


def fail(message: str, *, as_json: bool = False, kind: str = "error", code: int = 1) -> typer.Exit:
    """Print an error and give the exit to raise."""
    if as_json:
        emit({"error": {"type": kind, "message": message}})
    else:
        err.print(f"[bold red]error[/] ({kind}): {message}", highlight=False, markup=True)
    return typer.Exit(code)


def command(function: F) -> F:
    """Turn known errors into a message and exit code 1; unforeseen ones keep their stack trace."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RagClusterError as error:
            if isinstance(error, InternalError):
                raise
            raise fail(error.message, as_json=bool(kwargs.get("as_json")), kind=error.type) from None
        except KeyboardInterrupt:
            raise fail(
                "Interrupted; what was finished is kept, run again to go on.", kind="interrupted", code=130
            ) from None

    return wrapped  # type: ignore[return-value]
