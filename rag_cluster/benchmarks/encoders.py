"""Encoders side by side in one run: `varlen` against sentence-transformers and FlagEmbedding on the same texts.

    python -m rag_cluster.benchmarks.encoders [--threads 2] [--json]

On a GPU: bge-m3's and bge-reranker-v2-m3's shape with random weights, in about four minutes. Without one: a small shape
on the CPU, and the output says so. Needs torch, transformers, sentence-transformers; FlagEmbedding where it is there.
Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rag_cluster.benchmarks.encoders_models import BGE_M3, SMALL, Shape, made_texts, save_models
from rag_cluster.benchmarks.encoders_rows import (
    Results,
    embed_rate,
    least_cosine,
    lengths_of,
    matrix_rate,
    number,
    pair_rate,
    query_latency,
    rerank_latency,
)
from rag_cluster.engines.flagembedding import FlagEmbedder, FlagTextReranker
from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.sentence_transformers import SentenceTransformersEmbedder, SentenceTransformersReranker
from rag_cluster.engines.varlen import VarlenEmbedder, VarlenReranker
from rag_cluster.errors import RagClusterError

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Embedder

    Engine = Callable[[str, EngineOptions], Embedder]

QUESTION = "ba den kira fon sulan 的一是在不了 tiner"
FLOAT8_UNTIL = 200.0
"""Seconds after which float8, which nobody has to have, is left out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of each is measured. A reference that is slow gets fewer texts: its rate hardly depends on how many."""

    shape: Shape
    texts: int
    mean_tokens: int
    reference_texts: int
    slow_texts: int
    pairs: int
    reference_pairs: int
    queries: int
    rounds: int


ON_GPU = Plan(BGE_M3, 12_000, 250, 6000, 600, 3000, 600, 200, 2)
ON_CPU = Plan(SMALL, 96, 80, 48, 0, 30, 30, 20, 2)


def on_gpu(plan: Plan, results: Results, folder: Path, device: str = "cuda") -> None:
    """All rows of one GPU: ours first, so that no library's trouble costs them. device: another one for tests."""
    started = time.monotonic()
    matrix = matrix_rate(results)
    embedder, reranker = map(str, save_models(folder, plan.shape, device))
    texts = made_texts(plan.texts, plan.mean_tokens, 510)
    options = EngineOptions(device=device, threads=16)
    ours = VarlenEmbedder(embedder, options)
    lengths = lengths_of(ours, texts)
    results.add("texts: mean tokens", sum(lengths) / len(lengths), "")
    rate = embed_rate("varlen, bf16", ours, texts, results, plan.rounds, plan.texts)
    share = rate * plan.shape.flops(lengths) / sum(lengths) / 1e12 / matrix
    latency = query_latency("varlen, bf16: one query", ours, made_texts(plan.queries, 16, 32, seed=3), results)
    results.expect("varlen, tokens/s", rate, ">=", 700_000)
    results.expect("varlen, share of the matrix rate", share, ">=", 0.55)
    results.expect("varlen, one query, ms", latency, "<=", 1.5)
    ranks = VarlenReranker(reranker, options)
    latency = rerank_latency("varlen, bf16: 30 candidates", ranks, QUESTION, texts[:30], results)
    pairs = pair_rate("varlen, bf16: pairs in bulk", ranks, QUESTION, texts[: plan.pairs], results)
    results.expect("varlen, 30 candidates, ms", latency, "<=", 14)
    results.expect("varlen, pairs/s", pairs, ">=", 2200)
    _references(plan, results, (embedder, reranker), options, texts, ours, rate)
    if time.monotonic() - started < FLOAT8_UNTIL:
        # Random weights make all texts alike, so that the ranking check may refuse; `models check` takes real ones.
        with optional("varlen, float8"):
            small = VarlenEmbedder(embedder, replace(options, dtype="float8"))
            embed_rate("varlen, float8", small, texts, results, 1, len(texts))


def _references(
    plan: Plan,
    results: Results,
    models: tuple[str, str],
    options: EngineOptions,
    texts: list[str],
    ours: VarlenEmbedder,
    rate: float,
) -> None:
    embedder, reranker = models
    some = texts[: plan.reference_texts]
    bf16 = SentenceTransformersEmbedder(embedder, replace(options, dtype="bfloat16", batch_size=64))
    half = embed_rate("sentence-transformers, bf16, batch 64", bf16, some, results, 1, 256)
    results.expect("varlen / sentence-transformers bf16", rate / half, ">=", 3.8)
    exact = SentenceTransformersEmbedder(embedder, replace(options, dtype="float32", batch_size=32))
    embed_rate("sentence-transformers, fp32, batch 32", exact, texts[: plan.slow_texts], results, 1, 64)
    cosine = least_cosine("varlen, bf16: least cosine to fp32", ours, exact, texts[:256], results)
    results.expect("varlen, cosine", cosine, ">=", 0.9995)
    with optional("FlagEmbedding, fp16, batch 256"):
        flag = FlagEmbedder(embedder, replace(options, dtype="float16", batch_size=256))
        other = embed_rate("FlagEmbedding, fp16, batch 256", flag, some, results, 1, 512)
        results.expect("varlen / FlagEmbedding fp16", rate / other, ">=", 4.3)
    with optional("FlagEmbedding, fp16: 30 candidates, pairs in bulk"):
        scorer = FlagTextReranker(reranker, replace(options, dtype="float16", batch_size=128))
        rerank_latency("FlagEmbedding, fp16: 30 candidates", scorer, QUESTION, texts[:30], results)
        pair_rate("FlagEmbedding, fp16: pairs in bulk", scorer, QUESTION, texts[: plan.reference_pairs], results)


@contextlib.contextmanager
def optional(rows: str) -> Iterator[None]:
    """Of what need not be there, or may not work here: the run says so and goes on."""
    try:
        yield
    except RagClusterError as error:
        print(f"{rows}: not measured: {error}")


def on_cpu(plan: Plan, results: Results, folder: Path, threads: int) -> None:
    """The small shape: CPU time of one thread, which a busy machine hardly changes, and wall time of all threads."""
    embedder, reranker = save_models(folder, plan.shape, "cpu")
    mixed = made_texts(plan.texts, plan.mean_tokens, 510)
    one = EngineOptions(device="cpu", threads=1, batch_size=32)
    engines: dict[str, Engine] = {"varlen": VarlenEmbedder, "sentence-transformers": SentenceTransformersEmbedder}
    alone = {name: engine(str(embedder), one) for name, engine in engines.items()}
    lengths = lengths_of(alone["varlen"], mixed)
    ordered = [mixed[row] for row in sorted(range(len(mixed)), key=lambda row: lengths[row])]
    cosine = least_cosine("varlen: least cosine", alone["varlen"], alone["sentence-transformers"], mixed[:64], results)
    # Of one length there is no padding to save: what is left is the computing itself.
    alike = [ordered[len(ordered) // 2]] * (plan.texts // 3)
    for kind, texts in (("mixed lengths", mixed), ("sorted", ordered), ("one length", alike)):
        rates = _alternating(
            {name: partial(engine.embed_documents, texts) for name, engine in alone.items()},
            plan.rounds, sum(lengths_of(alone["varlen"], texts)),
        )  # fmt: skip
        for name, rate in rates.items():
            results.add(f"{name}, fp32, {kind}: tokens per CPU second", rate, "tokens/s")
        ratio = rates["varlen"] / rates["sentence-transformers"]
        results.expect(f"varlen / sentence-transformers, {kind}", ratio, ">=", 1.0)
    several = replace(one, threads=threads)
    for name, engine in {**engines, "FlagEmbedding": FlagEmbedder}.items():
        label = f"{name}, fp32, {threads} threads, wall time"
        with optional(label):
            embed_rate(label, engine(str(embedder), several), mixed[: plan.reference_texts], results, plan.rounds, 32)
    query_latency("varlen: one query", alone["varlen"], made_texts(plan.queries, 16, 32, seed=3), results)
    results.expect("varlen, cosine", cosine, ">=", 0.9999)
    for name, scorer in (("varlen", VarlenReranker), ("sentence-transformers", SentenceTransformersReranker)):
        pair_rate(
            f"{name}, fp32: pairs in bulk", scorer(str(reranker), several), QUESTION, mixed[: plan.pairs], results
        )


def _alternating(works: Mapping[str, Callable[[], object]], rounds: int, tokens: int) -> dict[str, float]:
    """Tokens per CPU second of each, the best of rounds taken in turns."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds + 1):  # the first one warms up
        for name, work in works.items():
            start = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - start)
    return {name: tokens / least for name, least in best.items()}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument("--json", action="store_true", help="one line of JSON at the end")
    arguments = parser.parse_args()
    os.environ["TQDM_DISABLE"] = "1"  # read by libraries that are imported later
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    cuda = torch.cuda.is_available()
    results = Results(torch.cuda.get_device_name() if cuda else "CPU")
    started = time.monotonic()
    if not cuda:
        print("No GPU here: a small shape on the CPU. The targets of a GPU are not measured.")
    with tempfile.TemporaryDirectory() as folder:
        if cuda:
            on_gpu(ON_GPU, results, Path(folder))
        else:
            on_cpu(ON_CPU, results, Path(folder), arguments.threads)
    results.add("the whole run", time.monotonic() - started, "s")
    for what, value, relation, target, met in results.checks:
        print(f"{'met   ' if met else 'MISSED'} {what:<50} {number(value):>12} {relation} {number(target)}")
    if arguments.json:
        print(json.dumps(asdict(results)))
    return 0 if all(check[-1] for check in results.checks) else 1


if __name__ == "__main__":
    sys.exit(main())
