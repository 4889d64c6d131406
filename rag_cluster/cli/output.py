"""How commands speak: tables for people, `--json` for programs, errors that say what to do, an exit code that tells.

Standard output carries results only. Whatever a library prints while a command runs goes to standard error.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_cluster.errors import InternalError, RagClusterError
from rag_cluster.ingestion.heartbeat import interruptible

if TYPE_CHECKING:
    from pydantic import ValidationError

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)

F = TypeVar("F", bound=Callable[..., Any])


def emit(value: Mapping[str, Any]) -> None:
    """One line of JSON on standard output."""
    out.file.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    out.file.flush()


def say(*parts: str | tuple[str, str]) -> None:
    """A line for people, of plain texts and (text, style) pairs. Texts are shown as they are, whatever they hold."""
    out.print(Text.assemble(*parts), soft_wrap=True)


def table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[object]], *, next_cursor: str | None = None
) -> None:
    """A table on a terminal; lines of tab-separated values, with the columns' names first, for `grep` and `cut`.

    next_cursor: where the next page begins, for the hint below an unfinished list.
    """
    names = list(columns)
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if out.is_terminal:
        _draw(title, names, cells)
    else:
        for line in (names, *cells):
            out.file.write("\t".join(" ".join(cell.split()) for cell in line) + "\n")
    if next_cursor:
        err.print(f"more: --cursor {next_cursor}", style="dim", soft_wrap=True)


def _draw(title: str, names: Sequence[str], cells: Iterable[Iterable[str]]) -> None:
    view = Table(title=Text(title), title_justify="left", header_style="bold")
    for name in names:
        view.add_column(Text(name), overflow="fold", no_wrap=name == "id")  # an id is there to be copied
    for line in cells:
        view.add_row(*map(Text, line))
    out.print(view)


def confirm(question: str) -> bool:
    """Ask on the terminal. False when nobody can answer."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def fail(message: str, *, as_json: bool = False, kind: str = "error", code: int = 1) -> typer.Exit:
    """Print an error and give the exit to raise."""
    if as_json:
        emit({"error": {"type": kind, "message": message}})
    else:
        err.print(Text.assemble(("error", "bold red"), f" ({kind}): {message}"), soft_wrap=True)
    return typer.Exit(code)


def command(function: F) -> F:
    """Turn foreseeable errors into a message and exit code 1; unforeseen ones keep their stack trace.

    SIGTERM ends a command as Ctrl-C does, so that what it started is stopped. The exit code is then 130.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        as_json = bool(kwargs.get("as_json"))
        out.file = sys.stdout
        with contextlib.redirect_stdout(sys.stderr):
            try:
                with interruptible():
                    return function(*args, **kwargs)
            except KeyboardInterrupt:
                text = "Interrupted; what was finished is kept, run again to go on."
                raise fail(text, as_json=as_json, kind="interrupted", code=130) from None
            except Exception as error:
                if (known := _known(error)) is None:
                    raise
                kind, message = known
                raise fail(message, as_json=as_json, kind=kind) from None

    return wrapped  # type: ignore[return-value]


def _known(error: Exception) -> tuple[str, str] | None:
    """(type, message) of an error that a person can do something about."""
    if isinstance(error, RagClusterError):
        return None if isinstance(error, InternalError) else (error.type, error.message)
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError) and error.strerror:
        return "operating_system", f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    name = type(error).__name__
    if name == "ValidationError" and hasattr(error, "errors"):
        return _invalid(error)  # type: ignore[arg-type]
    if name == "SettingsError":  # a value that should be JSON; its message names the setting and not the value
        return "invalid_setting", f"{error}: it takes JSON."
    return None


def _invalid(error: ValidationError) -> tuple[str, str]:
    """Of pydantic. Values are left out: they may be secrets."""
    prefix, kind = ("RAG_", "invalid_setting") if error.title == "Settings" else ("", "invalid_request")
    texts = []
    for detail in error.errors(include_input=False, include_context=False, include_url=False):
        place = ".".join(map(str, detail["loc"]))
        text = detail["msg"].removeprefix("Value error, ")
        texts.append(f"{prefix}{place.upper() if prefix else place}: {text}" if place else text)
    return kind, "; ".join(texts)
