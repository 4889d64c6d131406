"""A checkpoint on a device, ready to run; a smaller type than the device's usual one only where it ranks alike."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from rag_cluster.engines.encoder.checkpoint import Checkpoint
from rag_cluster.engines.encoder.model import EmbeddingHead, Encoder, ScoreHead
from rag_cluster.engines.encoder.packing import Encoded, packs
from rag_cluster.engines.encoder.precision import to_float8
from rag_cluster.engines.encoder.runtime import Runtime, device_of, dtype_of
from rag_cluster.engines.encoder.tokenizer import tokenizer_of
from rag_cluster.engines.encoder.weights import load_embedder, load_reranker
from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.ranking import PASSAGES, QUESTIONS, compare_rankings
from rag_cluster.errors import InvalidSettingError

log = logging.getLogger(__name__)

Scores = npt.NDArray[np.float32]


def embedder_runtime(checkpoint: Checkpoint, options: EngineOptions) -> Runtime:
    """An embedding model, warmed up. InvalidSettingError when it cannot be had on this machine or in this type."""
    return _runtime(load_embedder, checkpoint, options, _similarities)


def reranker_runtime(checkpoint: Checkpoint, options: EngineOptions) -> Runtime:
    """A cross-encoder, likewise."""
    return _runtime(load_reranker, checkpoint, options, _relevance)


def _runtime(
    load: Callable[[Checkpoint, float], tuple[Encoder, EmbeddingHead | ScoreHead]],
    checkpoint: Checkpoint,
    options: EngineOptions,
    scores: Callable[[Runtime, Checkpoint], Scores],
) -> Runtime:
    device = device_of(options.device)
    dtype = dtype_of(options.dtype, device)
    if options.dtype == "float8":
        _require_float8(checkpoint, device)
    encoder, head = load(checkpoint, options.load_timeout)
    expected = None
    if options.dtype == "float8" or (device.type == "cpu" and dtype != torch.float32):
        usual = Runtime(encoder, head, device=device, dtype=dtype_of("auto", device), compiled=False)
        expected = scores(usual, checkpoint)
    runtime = Runtime(encoder, head, device=device, dtype=dtype, threads=options.threads)
    if options.dtype == "float8":
        to_float8(runtime.encoder)
    runtime.warm_up()
    if expected is not None:
        _require_agreement(f"{options.dtype} of {checkpoint.name}", expected, scores(runtime, checkpoint))
    return runtime


def _require_float8(checkpoint: Checkpoint, device: torch.device) -> None:
    if torch.cuda.get_device_capability(device) < (8, 9):
        raise InvalidSettingError(f"float8 needs a GPU from Ada or Hopper on, not {torch.cuda.get_device_name(device)}")
    if checkpoint.architecture and (checkpoint.architecture.hidden % 16 or checkpoint.architecture.intermediate % 16):
        raise InvalidSettingError(f"float8 needs layers of a multiple of 16, which {checkpoint.name} has not")


def _require_agreement(what: str, expected: Scores, found: Scores) -> None:
    agreement = compare_rankings(expected, found)
    log.info("%s against the usual type: %s", what, agreement)
    if not agreement.passes:
        raise InvalidSettingError(f"{what} finds other texts ({agreement}): leave RAG_MODEL_DTYPE at auto")


def _similarities(runtime: Runtime, checkpoint: Checkpoint) -> Scores:
    """Cosine of each question to each passage."""
    tokenizer = tokenizer_of(checkpoint)
    both = []
    for prefix, texts in ((checkpoint.query_prefix, QUESTIONS), (checkpoint.document_prefix, PASSAGES)):
        ids = tokenizer.encode([prefix + text for text in texts], checkpoint.max_tokens)
        both.append(runtime.run(packs([[Encoded(*one) for one in enumerate(ids)]], runtime.tokens), len(texts)))
    return np.asarray(both[0] @ both[1].T, dtype=np.float32)


def _relevance(runtime: Runtime, checkpoint: Checkpoint) -> Scores:
    """Logit of each question and passage."""
    tokenizer = tokenizer_of(checkpoint)
    rows = []
    for question in QUESTIONS:
        pairs = zip(*tokenizer.encode_pairs(question, PASSAGES, checkpoint.max_tokens), strict=True)
        encoded = [Encoded(row, ids, types) for row, (ids, types) in enumerate(pairs)]
        rows.append(runtime.run(packs([encoded], runtime.tokens), len(PASSAGES))[:, 0])
    return np.stack(rows)
