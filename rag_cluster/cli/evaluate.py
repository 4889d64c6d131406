"""eval: questions with known answers; eval compare: two runs of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from rag_cluster.cli.options import Json
from rag_cluster.cli.output import command, emit, err, table

if TYPE_CHECKING:
    from rag_cluster.cli.evaluation_target import Subject
    from rag_cluster.evaluation.gates import Verdict
    from rag_cluster.evaluation.results import Evaluation
    from rag_cluster.evaluation.runner import Asked, Examination, Progress
    from rag_cluster.evaluation.target import Target
    from rag_cluster.evaluation.variants import Arm

group = typer.Typer()


def _to_write(path: Path | None) -> Path | None:
    """An option's file, in a folder that is there from now on. A run of hours is not lost to a path."""
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise typer.BadParameter(f"{path.parent}: {error.strerror}") from None
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise typer.BadParameter(f"{path} cannot be written")
    return path


@group.callback(invoke_without_command=True)
@command
def eval_(
    context: typer.Context,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="golden (our samples), squad:PATH (also XQuAD, CMRC), articles:PATH, spans:PATH, jsonl:PATH[+FOLDER],"
            " mixed:ASKED+HELD, cross:ASKED+HELD. See docs/evaluation.md."
        ),
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Only this many questions, evenly spread.")] = None,
    ablation: Annotated[
        str, typer.Option(help="Ways of retrieving: dense, sparse, hybrid, rerank, parents, rerank+parents, cross.")
    ] = "dense,sparse,hybrid",
    chunking: Annotated[
        list[str] | None,
        typer.Option(help="Ways of chunking, e.g. structured:200/1200,fixed_size:512/50; each is indexed once."),
    ] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Without ingestion and PostgreSQL; --chunking implies it.")
    ] = False,
    knowledge_base: Annotated[
        str | None, typer.Option("--knowledge-base", "-k", help="Ask this one instead of ingesting the documents.")
    ] = None,
    answers: Annotated[bool, typer.Option("--answers/--no-answers", help="Also measure answers and refusals.")] = True,
    off_topic: Annotated[
        str | None, typer.Option(help="Another data set whose questions this one cannot answer. Default: our own.")
    ] = None,
    latency: Annotated[int, typer.Option(min=0, help="Questions that are asked again for latencies.")] = 50,
    embedding_cache: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder that remembers vectors between runs.")
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(
            help="Fail unless, e.g., 'recall@5>=0.99' or 'dense mrr@10>=0.9' or 'recall@5/zh>=1'; repeatable."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(dir_okay=False, callback=_to_write, help="Write the run as JSON, for compare.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(dir_okay=False, callback=_to_write, help="Write the run as an HTML page.")
    ] = None,
    mine_hard_negatives: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, callback=_to_write, help="Write what was ranked high and does not answer, as JSON lines."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask questions with known answers; report Recall, MRR, nDCG, latency, cost, answers and refusals.

    Example: `rag-cluster eval --dataset xquad:xquad.zh.json --gate 'recall@5>=0.99'`
    """
    if context.invoked_subcommand:
        return
    if not dataset:
        raise typer.BadParameter("say which --dataset, or: rag-cluster eval compare A.json B.json")
    from rag_cluster.cli import evaluation_target
    from rag_cluster.evaluation.datasets import load
    from rag_cluster.evaluation.gates import check, parse_gates
    from rag_cluster.evaluation.html_report import page
    from rag_cluster.evaluation.runner import Examination
    from rag_cluster.evaluation.variants import measurable, parse_arms, parse_variants

    gates, arms, variants = parse_gates(gate or ()), parse_arms(ablation), parse_variants(chunking or ())
    chosen = load(dataset).sample(sample)
    inside = in_process or bool(variants)
    if inside and knowledge_base:
        raise typer.BadParameter("--knowledge-base holds chunks already: it excludes --chunking and --in-process")
    opened = (
        evaluation_target.in_process(chosen, variants, embedding_cache)
        if inside
        else evaluation_target.in_stores(chosen, knowledge_base, embedding_cache, quiet=as_json)
    )
    strays = None if inside or not answers else _strays(off_topic)
    with opened as subject:
        asked = measurable(arms, reranker=subject.services.async_reranker is not None)
        examination = Examination.of(chosen, subject.embedder.tokenizer)
        planned = replace(examination.blank(asked, variants, latency), system=_system(subject, arms, asked))
        check(gates, planned)
        result = _examined(subject, examination, planned, asked, latency, mine_hard_negatives, strays)
    if report:
        result.write(report)
    verdicts = check(gates, result)
    if html:
        html.write_text(page(result, verdicts), encoding="utf-8")
    if as_json:
        emit({**result.summary(), "gates": [one.to_dict() for one in verdicts]})
    else:
        _show(result, verdicts)
    if not all(one.passed for one in verdicts):
        raise typer.Exit(1)


def _strays(other: str | None) -> Sequence[str]:
    """Questions that the data set does not answer."""
    from rag_cluster.evaluation.datasets import load, off_topic_questions

    own = off_topic_questions()
    return tuple(question.text for question in load(other).sample(len(own) * 4).questions) if other else own


def _system(subject: Subject, wanted: Sequence[Arm], asked: Sequence[Arm]) -> dict[str, str]:
    system = {"embedder": subject.services.settings.embedder, "facts": subject.facts}
    if left_out := ", ".join(arm.name for arm in wanted if arm not in asked):
        system["left out"] = f"{left_out}: no reranker is configured"
    return system


def _examined(
    subject: Subject,
    examination: Examination,
    planned: Evaluation,
    arms: Sequence[Arm],
    timed: int,
    negatives: Path | None,
    strays: Sequence[str] | None,
) -> Evaluation:
    """Every arm on every target, and answers where off-topic questions are given."""
    from rag_cluster.evaluation.answers import measure
    from rag_cluster.evaluation.hard_negatives import mine, write
    from rag_cluster.evaluation.results import ArmResult
    from rag_cluster.evaluation.runner import examine

    results: list[ArmResult] = []
    answers: dict[str, Any] = {}
    kept: list[tuple[Arm, Target, Sequence[Asked]]] = []

    def listener(arm: Arm, target: Target, asked: Sequence[Asked]) -> None:
        if negatives and (not kept or arm.name == "hybrid" != kept[0][0].name):
            kept[:] = [(arm, target, asked)]

    with asyncio.Runner() as runner:  # one loop for all targets, none while one is made
        for target in subject.targets:
            with _progress() as progress:
                asked = examine(target, examination, arms, timed=timed, progress=progress, listener=listener)
                results += runner.run(asked)
                if strays is not None:
                    answers = runner.run(measure(target, examination.dataset, strays, progress))
    for _, target, found in kept:
        write(mine(found, target.names), negatives or Path())
    return replace(planned, arms=results, answers=answers)


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=1)
        yield lambda stage, done, total: bar.update(task, description=stage, completed=done, total=total)


def _show(result: Evaluation, verdicts: Sequence[Verdict]) -> None:
    from rag_cluster.evaluation.tables import tables

    for title, columns, rows in tables(result):
        table(title, columns, rows)
    if left_out := result.system.get("left out"):
        err.print(f"left out: {left_out}", style="dim", soft_wrap=True)
    for arm in result.arms:
        for note in arm.notes:
            err.print(f"{arm.name}: {note}", style="dim", soft_wrap=True)
    if result.answers:
        _show_answers(result)
    if verdicts:
        rows = [[one.gate.text, f"{one.found:.4f}", "passed" if one.passed else "FAILED"] for one in verdicts]
        table("Gates", ("gate", "found", "verdict"), rows)


def _show_answers(result: Evaluation) -> None:
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


@group.command()
@command
def compare(
    a: Annotated[Path, typer.Argument(help="A run that --report wrote.")],
    b: Annotated[Path, typer.Argument(help="Another, on the same questions.")],
    fail_on_regression: Annotated[
        bool, typer.Option("--fail-on-regression", help="Exit code 1 when B is significantly worse in any measure.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare two runs question by question: paired randomisation test, and a bootstrap interval of the difference.

    Example: `rag-cluster eval compare before.json after.json`
    """
    from rag_cluster.evaluation.results import Evaluation
    from rag_cluster.evaluation.significance import caveats
    from rag_cluster.evaluation.significance import compare as compared

    runs = Evaluation.read(a), Evaluation.read(b)
    differences, notes = compared(*runs), caveats(*runs)
    if as_json:
        emit({"a": str(a), "b": str(b), "notes": notes, "differences": [one.to_dict() for one in differences]})
    else:
        for note in notes:
            err.print(note, style="yellow", soft_wrap=True)
        table(
            f"{b.name} against {a.name}",
            ("arm", "measure", "questions", "A", "B", "B - A", "95 % interval", "p", ""),
            (
                (
                    one.arm,
                    one.measure,
                    one.questions,
                    f"{one.a:.4f}",
                    f"{one.b:.4f}",
                    f"{one.difference:+.4f}",
                    f"{one.low:+.4f} to {one.high:+.4f}",
                    f"{one.p:.4f}",
                    "significant" if one.significant else "",
                )
                for one in differences
            ),
        )
    if fail_on_regression and any(one.significant and one.difference < 0 for one in differences):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(group, name="eval")
