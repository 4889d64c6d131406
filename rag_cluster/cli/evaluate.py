"""eval: questions with known answers through the real system."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rag_cluster.cli.options import Json
from rag_cluster.cli.output import command, emit, err, fail, table
from rag_cluster.cli.session import services
from rag_cluster.domain.access import LOCAL, AccessAttributes

if TYPE_CHECKING:
    from rag_cluster.evaluation.datasets import Dataset
    from rag_cluster.evaluation.runner import Evaluation, Target
    from rag_cluster.wiring import Services


@command
def eval_(
    dataset: Annotated[str, typer.Option(help="xquad:PATH or squad:PATH (SQuAD-style JSON).")],
    sample: Annotated[int | None, typer.Option(min=1, help="Only this many questions, evenly spread.")] = None,
    answers: Annotated[bool, typer.Option("--answers/--no-answers", help="Also measure answers.")] = True,
    off_topic: Annotated[
        str | None, typer.Option(help="Another data set whose questions this one cannot answer. Default: our own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ingest a data set's paragraphs as documents; report Recall, MRR, nDCG and how answers and refusals fare.

    Example: `rag-cluster eval --dataset xquad:xquad.zh.json`
    """
    from rag_cluster.evaluation.datasets import load, off_topic_questions
    from rag_cluster.evaluation.measures import retrieval_measures
    from rag_cluster.evaluation.runner import evaluate

    retrieval_measures({"q": "d"}, {"q": ["d"]})  # before the work of ingesting: it says what must be installed
    questions = load(dataset).sample(sample)
    strays = off_topic_questions()
    if off_topic:
        strays = tuple(question.text for question in load(off_topic).sample(len(strays) * 4).questions)
    target = _ingested(services(), questions, as_json)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("", total=1)
        result = asyncio.run(
            evaluate(
                target,
                questions,
                strays,
                answers=answers,
                progress=lambda stage, done, total: progress.update(
                    task, description=stage, completed=done, total=total
                ),
            )
        )
    if as_json:
        emit(result.to_dict())
    else:
        _show(result)


def _ingested(opened: Services, dataset: Dataset, quiet: bool) -> Target:
    from rag_cluster.answering.calibration import calibration_for
    from rag_cluster.cli.ray_session import ray_address, ray_stopped_afterwards
    from rag_cluster.evaluation.runner import Target, paragraph_filename, write_paragraphs
    from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
    from rag_cluster.wiring import WritePathFactory

    settings = opened.settings
    name = f"eval-{dataset.fingerprint}"
    folder = settings.home / "evaluation" / dataset.fingerprint
    write_paragraphs(dataset, folder)
    base = opened.ensure_knowledge_base(name)
    options = IngestionOptions(AccessAttributes(()), progress=not quiet)
    with ray_stopped_afterwards():
        report = run_ingestion(
            WritePathFactory(settings), name, [str(folder)], options, address=ray_address(settings, None)
        )
    if not report.ok:
        raise fail(f"ingesting the paragraphs failed: {report.headline()}", as_json=quiet, kind="ingestion_failed")
    by_name: dict[str, str] = {}
    cursor: str | None = None
    while True:
        documents, cursor = opened.catalog.list_documents(base.id, LOCAL, cursor=cursor, limit=200)
        by_name.update({document.filename: document.id for document in documents})
        if cursor is None:
            break
    return Target(
        retriever=opened.retriever(opened.async_embedder),
        answerer=opened.answerer(opened.async_embedder),
        knowledge_base_id=base.id,
        documents=[by_name[paragraph_filename(number)] for number in range(len(dataset.paragraphs))],
        calibration=calibration_for(settings.embedder),
    )


def _show(result: Evaluation) -> None:
    from rag_cluster.evaluation.measures import NAMES

    table(
        f"{result.dataset}: {result.questions} questions, {result.paragraphs} paragraphs",
        ("mode", *NAMES, "p50 ms", "p99 ms"),
        (
            (mode, *(f"{values[name]:.4f}" for name in NAMES), values["p50_ms"], values["p99_ms"])
            for mode, values in result.modes.items()
        ),
    )
    if not result.answers:
        return
    scalars = {name: value for name, value in result.answers.items() if name != "refusal_curve"}
    table("Answers (held-out half)", ("measure", "value"), scalars.items())
    table(
        "Refusals as the threshold moves (0: calibrated)",
        ("shift", "answerable refused", "gold removed refused", "off-topic refused"),
        (
            (point["shift"], point["answerable"], point["gold_removed"], point["off_topic"])
            for point in result.answers["refusal_curve"]
        ),
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("eval")(eval_)
