"""The `rag-cluster` command. One module per group of commands; `main` puts them together."""

from rag_cluster.cli.main import app, main

__all__ = ["app", "main"]
