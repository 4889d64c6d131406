"""Puts the commands together; each has an example in its --help."""

from __future__ import annotations

import sys
from typing import Any

import typer

from rag_cluster.cli import (
    agents,
    corrections,
    delete,
    demo,
    documents,
    evaluate,
    explain,
    fsck,
    ingest,
    keys,
    knowledge_bases,
    models,
    parse,
    query,
    reembed,
    runs,
    serve,
    sources,
    stores,
)
from rag_cluster.cli.output import emit, out

app = typer.Typer(
    name="rag-cluster",
    help="RAG over whole corpora: ingest with Ray Data, answer with Ray Serve, every answer cited.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for module in (demo, stores, ingest, serve, query, explain, parse, evaluate, delete, fsck, reembed):
    module.register(app)
app.add_typer(knowledge_bases.app, name="kb")
app.add_typer(documents.app, name="docs")
app.add_typer(sources.app, name="sources")
app.add_typer(agents.app, name="agents")
app.add_typer(corrections.app, name="corrections")
app.add_typer(runs.app, name="runs")
app.add_typer(keys.app, name="keys")
app.add_typer(models.app, name="models")

_ClickError: Any = typer.BadParameter.__mro__[2]
"""ClickException: typer names it only by its children, and brings its own click since 0.20."""


def main() -> None:
    """Entry point."""
    out.file = sys.stdout
    for stream in (sys.stdout, sys.stderr):
        # A file name that the terminal's encoding lacks is no reason to fail.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        code = 1
    except _ClickError as error:  # a mistyped command line
        error.show()
        if "--json" in sys.argv:
            emit({"error": {"type": "invalid_request", "message": error.format_message()}})
        code = error.exit_code
    sys.exit(code if isinstance(code, int) else 0)
