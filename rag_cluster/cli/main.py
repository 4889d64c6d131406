"""Puts the commands together; each has an example in its --help."""

from __future__ import annotations

import typer

from rag_cluster.cli import demo, documents, evaluate, ingest, keys, knowledge_bases, parse, query, runs, serve, stores

app = typer.Typer(
    name="rag-cluster",
    help="RAG over whole corpora: ingest with Ray Data, answer with Ray Serve, every answer cited.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for module in (demo, stores, ingest, serve, query, parse, evaluate):
    module.register(app)
app.add_typer(knowledge_bases.app, name="kb")
app.add_typer(documents.app, name="docs")
app.add_typer(runs.app, name="runs")
app.add_typer(keys.app, name="keys")


def main() -> None:
    """Entry point."""
    app()
