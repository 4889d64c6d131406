"""parse: what the parsers see in a file, without any store."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from rag_cluster.cli.output import Json, command, emit, err, out, table
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.output import ParsedFile, document_markdown, parse_files
from rag_cluster.settings import get_settings
from rag_cluster.wiring import parse_limits


class Format(StrEnum):
    """How parsed documents are printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


@command
def parse(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=True, help="Files or folders.")],
    out_dir: Annotated[Path | None, typer.Option("--out", help="Write DIR/<file name>.json per file.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    as_json: Json = False,
) -> None:
    """Parse files in the isolated child and show their blocks. Exit code 1 when a file could not be parsed.

    Example: `rag-cluster parse report.pdf --format markdown`
    """
    settings = get_settings()
    paths = [path for given in files for path in _expand(given)]
    results = parse_files(
        paths,
        out_dir,
        parse_limits(settings),
        OcrMode(settings.ocr),
        parsers=settings.parsers,
        ocr_threads=settings.ocr_threads,
    )
    done = failed = 0
    with Progress(console=err, transient=True) as progress:
        task = progress.add_task("parsing", total=len(paths))
        for result in results:
            done += 1
            failed += result.error is not None
            _print(result, Format.JSON if as_json else format_, quiet=out_dir is not None)
            progress.advance(task)
    if as_json:
        emit({"files": done, "failed": failed})
    if failed:
        raise typer.Exit(1)


def _expand(path: Path) -> list[Path]:
    return sorted(child for child in path.rglob("*") if child.is_file()) if path.is_dir() else [path]


def _print(result: ParsedFile, format_: Format, *, quiet: bool) -> None:
    if format_ is Format.JSON:
        if not quiet:
            emit({"file": str(result.path), **result.json})
    elif result.error is not None:
        err.print(f"[red]{escape(str(result.path))}[/]: {result.error.type}: {escape(result.error.message)}")
    elif quiet or result.document is None:
        return
    elif format_ is Format.MARKDOWN:
        out.print(document_markdown(result.document), markup=False, highlight=False, soft_wrap=True)
    else:
        table(
            str(result.path),
            ("type", "place", "content"),
            (
                (block.type, block.locator.display(), escape(" ".join(block.content.split())[:160]))
                for block in result.document.blocks
            ),
        )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(parse)
