"""parse: what the parsers see in a file, without any store."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress
from rich.text import Text

from rag_cluster.cli.options import Json, Ocr, with_ocr
from rag_cluster.cli.output import command, emit, err, out, say, table
from rag_cluster.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
    from rag_cluster.parsing.limits import ParseLimits
    from rag_cluster.parsing.output import ParsedFile


class Format(StrEnum):
    """How parsed documents are printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


@command
def parse(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=True, help="Files or folders.")],
    out_dir: Annotated[Path | None, typer.Option("--out", help="Write DIR/NAME.json per file.")] = None,
    view: Annotated[
        Path | None, typer.Option("--view", "--html", help="Write one HTML page: the file's pages and its blocks.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    ocr: Ocr = None,
    as_json: Json = False,
) -> None:
    """Parse files in the isolated child and show their blocks. Exit code 1 when a file could not be parsed.

    `--view page.html` shows the pages with the blocks drawn on them.

    Example: `rag-cluster parse report.pdf --format markdown`
    """
    from rag_cluster.parsing.output import parse_files
    from rag_cluster.settings import get_settings
    from rag_cluster.wiring import isolated_parser, parse_limits

    if view is not None and (len(files) != 1 or files[0].is_dir()):
        raise InvalidRequestError("--view shows one file; name exactly one.")
    settings = with_ocr(get_settings(), ocr)
    # Deferred shows what a bulk run publishes first: the text that is there, and what awaits recognition.
    results = parse_files(files, isolated_parser(settings, postpone_ocr=settings.ocr == "deferred"), out_dir)
    done = failed = 0
    # What is printed shows how far it is; only when it goes into files, a bar does.
    with Progress(console=err, transient=True, disable=out_dir is None or not err.is_terminal) as progress:
        task = progress.add_task("parsing", total=None)
        for result in results:
            done += 1
            failed += result.error is not None
            _print(result, Format.JSON if as_json else format_, quiet=out_dir is not None or view is not None)
            if view is not None and result.document is not None:
                write_view(view, result.source, result.document, parse_limits(settings))
                err.print(Text.assemble("blocks view: ", (str(view), "bold")), soft_wrap=True)
            progress.update(task, advance=1, description=result.path.name)
    if not done:
        raise NotFoundError(f"There is no file to parse in {', '.join(map(str, files))}.")
    if as_json:
        emit({"files": done, "failed": failed})
    elif out_dir is not None:
        say(f"{done} files, {failed} failed; written to {out_dir}")
    if failed:
        raise typer.Exit(1)


def _print(result: ParsedFile, format_: Format, *, quiet: bool) -> None:
    if format_ is Format.JSON:
        if not quiet:
            emit({"file": str(result.path), **result.json})
    elif result.error is not None:
        text = f": {result.error.type}: {result.error.message}"
        err.print(Text.assemble((str(result.path), "red"), text), soft_wrap=True)
    elif quiet or result.document is None:
        return
    elif format_ is Format.MARKDOWN:
        from rag_cluster.parsing.output import document_markdown

        out.file.write(document_markdown(result.document))
    else:
        table(
            str(result.path),
            ("type", "place", "content"),
            (
                (block.type, block.locator.display(), " ".join(block.content.split())[:160])
                for block in result.document.blocks
            ),
        )


def write_view(view: Path, source: DocumentSource, document: ParsedDocument, limits: ParseLimits) -> None:
    """Write one self-contained HTML page: the document's pages with its blocks drawn on them."""
    from rag_cluster.parsing.blocks_view import blocks_view
    from rag_cluster.parsing.page_pictures import page_pictures

    page = blocks_view(document, source, page_pictures(source, limits))
    view.write_text(page, encoding="utf-8", errors="replace")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(parse)
