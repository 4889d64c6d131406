"""parse: what the parsers see in a file, without any store."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress

from rag_cluster.cli.output import Json, command, emit, err, out, table
from rag_cluster.parsing.output import document_json, document_markdown, error_json, parse_files
from rag_cluster.settings import get_settings
from rag_cluster.wiring import isolated_parser


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
    paths = [path for given in files for path in _expand(given)]
    if out_dir:
        out_dir.mkdir(parents=True, exist_ok=True)
    failed = 0
    with isolated_parser(get_settings()) as parser, Progress(console=err, transient=True) as progress:
        task = progress.add_task("parsing", total=len(paths))
        for result in parse_files(parser, paths):
            failed += result.error is not None
            body = error_json(result.error) if result.error else document_json(result.document, result.source)
            if out_dir:
                target = out_dir / f"{result.path.name}.json"
                target.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")
            _print(result, body, format_, as_json, quiet=out_dir is not None)
            progress.advance(task)
    if as_json:
        emit({"files": len(paths), "failed": failed})
    if failed:
        raise typer.Exit(1)


def _expand(path: Path) -> list[Path]:
    return sorted(child for child in path.rglob("*") if child.is_file()) if path.is_dir() else [path]


def _print(result: Any, body: dict[str, Any], format_: Format, as_json: bool, *, quiet: bool) -> None:
    if as_json or format_ is Format.JSON:
        if not quiet:
            emit({"file": str(result.path), **body})
    elif result.error is not None:
        err.print(f"[red]{escape(str(result.path))}[/]: {result.error.type}: {escape(result.error.message)}")
    elif quiet:
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
