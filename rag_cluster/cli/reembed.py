"""reembed: another index from snapshots, by another embedder; indexes: what there is, switching back, dropping."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rag_cluster.cli.options import Json, Yes
from rag_cluster.cli.output import command, confirm, emit, fail, say, table
from rag_cluster.cli.session import services
from rag_cluster.errors import IndexMismatchError, InvalidRequestError

if TYPE_CHECKING:
    from rag_cluster.lifecycle.recall import Comparison
    from rag_cluster.lifecycle.reembed import Compare, ReembedReport
    from rag_cluster.wiring import Services

app = typer.Typer(help="Vector indexes: one an embedder, one of them active.", no_args_is_help=True)

_OUTCOMES = {
    "switched": "complete, and active now: set RAG_EMBEDDER={model} and restart what serves and ingests",
    "built": "complete, not switched to: rag-cluster indexes switch {collection}",
    "active": "active already, and complete",
    "refused": "complete, but worse by {loss:.4f}: not switched to (--force, --max-loss)",
    "incomplete": "not switched to: {missing} parts are missing; run again",
}


@command
def reembed(
    model: Annotated[
        str | None, typer.Option("--model", "--embedder", help="As RAG_EMBEDDER names one. Default: RAG_EMBEDDER.")
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option(help="JSON lines of query and document or chunk; compares old and new before a switch."),
    ] = None,
    knowledge_base: Annotated[
        str | None, typer.Option("--knowledge-base", "-k", help="Of questions that name none.")
    ] = None,
    old_model: Annotated[
        str | None, typer.Option(help="The active index's embedder, for the questions. Default: RAG_EMBEDDER.")
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Results that count for Recall and MRR.")] = 5,
    max_loss: Annotated[float, typer.Option(help="Recall or MRR may be worse by this much, at most.")] = 0.02,
    force: Annotated[bool, typer.Option("--force", help="Switch although it is worse by more.")] = False,
    switch: Annotated[bool, typer.Option("--switch/--no-switch", help="Switch when it is complete.")] = True,
    address: Annotated[str | None, typer.Option(help="auto or host:port joins that Ray.")] = None,
    as_json: Json = False,
) -> None:
    """Build another index from snapshots, without parsing, and switch queries to it. Run it again after a kill.

    Ingestion, uploads, deletes and queries go on meanwhile. The old index stays until it is dropped.
    Exit code 0: done as asked. 1: the index is incomplete, or worse than --max-loss allows.

    Example: `rag-cluster reembed --model mypackage.engines:BgeM3 --questions questions.jsonl -k handbook`
    """
    from rag_cluster.cli.ray_session import ray_address, ray_stopped_afterwards
    from rag_cluster.ingestion.pipeline import fill_stream
    from rag_cluster.lifecycle.reembed import ReembedOptions, register
    from rag_cluster.lifecycle.reembed import reembed as run
    from rag_cluster.settings import get_settings
    from rag_cluster.wiring import ServiceFactory, WritePathFactory

    settings = get_settings()
    target_ray = ray_address(settings, address)
    if target_ray and target_ray.startswith(("http://", "https://")):
        raise InvalidRequestError(
            f"This command joins a Ray; as a job: ray job submit --address {target_ray} -- python jobs/reembed.py ..."
        )
    opened = services(settings)
    name = model or settings.embedder
    target = settings.model_copy(update={"embedder": name})
    new = ServiceFactory(target)()
    compare = None if questions is None else _comparison(opened, new, questions, knowledge_base, old_model, top_k)
    write_path = new.write_path()
    record = register(write_path)
    stream = fill_stream(WritePathFactory(target), record, str(uuid.uuid4()), address=target_ray)
    options = ReembedOptions(switch=switch, max_loss=max_loss, force=force, progress=not as_json)
    with ray_stopped_afterwards():
        report = run(write_path, record, stream, options, compare)
    if as_json:
        emit(report.to_dict())
    else:
        _show(report, name)
    if not report.ok:
        raise typer.Exit(1)


def _comparison(
    opened: Services, new: Services, path: Path, base: str | None, old_model: str | None, top_k: int
) -> Compare:
    """Checked before the long work."""
    from rag_cluster.lifecycle.recall import load_questions
    from rag_cluster.wiring import ServiceFactory

    asked = load_questions(path, base, lambda name: opened.catalog.knowledge_base(name).id)
    old = opened
    if old_model is not None:
        old = ServiceFactory(opened.settings.model_copy(update={"embedder": old_model}))()
    active = next((record for record in opened.catalog.indexes() if record.state == "active"), None)
    mine = (new.embedder.fingerprint, old.embedder.fingerprint)
    if active is not None and active.embedder_fingerprint not in mine:
        raise IndexMismatchError(
            f"The active index {active.collection} belongs to another embedder than {old.settings.embedder}: name its "
            "own with --old-model, so that the questions can be asked of it."
        )
    return old.compare_indexes(new, asked, top_k)


def _show(report: ReembedReport, model: str) -> None:
    if report.comparison is not None:
        _show_comparison(report.comparison)
    for receipt in report.failures:
        say(f"  failed {receipt.uri}: {receipt.error_type}: {receipt.message}")
    loss = report.comparison.loss if report.comparison is not None else 0.0
    text = _OUTCOMES[report.outcome].format(
        model=model, collection=report.collection, loss=loss, missing=report.missing
    )
    say(f"{report.collection}: {report.chunks:,} chunks embedded in {report.seconds:.1f} s; {text}")


def _show_comparison(comparison: Comparison) -> None:
    k = comparison.top_k
    table(
        f"{comparison.questions} questions",
        ("mode", f"Recall@{k} old", f"Recall@{k} new", f"MRR@{k} old", f"MRR@{k} new"),
        (
            (mode, *(f"{value:.4f}" for value in (old.recall, new.recall, old.mrr, new.mrr)))
            for mode, old, new in ((mode, old, comparison.new[mode]) for mode, old in comparison.old.items())
        ),
    )


@app.command("list")
@command
def list_(as_json: Json = False) -> None:
    """Show every index, with the parts and chunks that queries see and it lacks.

    Example: `rag-cluster indexes list`
    """
    catalog = services().catalog
    found = [(record, *catalog.count_missing(record.id)) for record in catalog.indexes()]
    if as_json:
        items = [asdict(record) | {"missing_parts": parts, "missing_chunks": chunks} for record, parts, chunks in found]
        emit({"indexes": items})
        return
    table(
        "Indexes",
        ("collection", "state", "dimension", "embedder", "missing parts", "missing chunks"),
        (
            (record.collection, record.state, record.dimension, record.embedder_fingerprint, parts, chunks)
            for record, parts, chunks in found
        ),
    )


Name = Annotated[str, typer.Argument(help="Collection, or embedder fingerprint.")]


@app.command("switch")
@command
def switch_(name: Name, as_json: Json = False) -> None:
    """Make a complete index the active one; the other stays, retired. At once, without embedding.

    Example: `rag-cluster indexes switch chunks_5c1d0b7a9e3f2468`
    """
    record = services().switch_index(name)
    if as_json:
        emit(asdict(record))
    else:
        say(f"{record.collection} is active: set RAG_EMBEDDER to its embedder and restart what serves and ingests")


@app.command("drop")
@command
def drop_(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Delete an index that is not active. Servers that still have its embedder answer with an error from then on.

    Example: `rag-cluster indexes drop chunks_5c1d0b7a9e3f2468 --yes`
    """
    opened = services()
    if not yes and not confirm(f"Drop index {name}?"):
        raise fail("Not dropped; --yes does not ask.", as_json=as_json, kind="aborted")
    record = opened.drop_index(name)
    if as_json:
        emit({"dropped": record.collection})
    else:
        say(f"{record.collection} is dropped")


def register(to: typer.Typer) -> None:
    """Add the commands."""
    to.command()(reembed)
    to.add_typer(app, name="indexes")
