"""What runs on a GPU, as far as a CPU can show it: attention over cumulative lengths, compiled with dynamic shapes, and
packs filled up for CUDA graphs, and the way through both. Kernels and graphs are replaced by their definitions."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rag_cluster.engines.encoder.checkpoint import open_checkpoint
from rag_cluster.engines.encoder.packing import Encoded, Pack, pack, packs
from rag_cluster.engines.encoder.tokenizer import tokenizer_of
from rag_cluster.engines.options import EngineOptions
from rag_cluster.engines.varlen import VarlenEmbedder, VarlenReranker
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError
from tests.fixtures.models import mixed_texts, require_models

TEXTS = mixed_texts(60)
OPTIONS = EngineOptions(device="cpu", dtype="float32")


@pytest.fixture
def kernel() -> Iterator[list[int]]:
    """torch's variable-length attention on the CPU: its operator gets a second kernel. Yields the lengths given."""
    require_models()
    import torch
    from torch.nn.attention import varlen

    from rag_cluster.engines.encoder.attention import one_by_one

    seen: list[int] = []

    @torch._dynamo.disable
    def reference(q: Any, k: Any, v: Any, bounds: Any, bounds_k: Any, longest: int, *rest: Any) -> tuple[Any, Any, Any]:
        seen.append(longest)
        out = one_by_one(torch.stack((q, k, v), dim=1), bounds, longest)
        return out, torch.zeros(q.shape[1], q.shape[0]), torch.zeros(2, dtype=torch.uint64)

    varlen._varlen_attn.register_kernel("cpu")(reference)
    try:
        yield seen
    finally:
        varlen._varlen_attn._backend_fns.pop("cpu", None)


class RecordedCall:
    """What a CUDA graph is: one call that was captured, computed anew into the same place by each replay."""

    def __init__(self) -> None:
        self.replays = 0

    def captured(self, compute: Any, arguments: tuple[Any, ...], result: Any) -> None:
        self._compute, self._arguments, self._result = compute, arguments, result

    def replay(self) -> None:
        self.replays += 1
        self._result.copy_(self._compute(*self._arguments))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, kernel: list[int]) -> Callable[[Any], dict[int, Any]]:
    """Makes a runtime take the way of a GPU: pinned tensors, packs made ahead, graphs. Returns these by their size."""
    import torch

    from rag_cluster.engines.encoder.graphs import Graphs

    calls: list[tuple[Any, ...]] = []

    @contextlib.contextmanager
    def capture(graph: RecordedCall, capture_error_mode: str) -> Iterator[None]:
        yield
        graph.captured(*calls[-1])

    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name, fake in {
        "device": contextlib.nullcontext,
        "Stream": lambda device: stream,
        "current_stream": lambda device: stream,
        "stream": contextlib.nullcontext,
        "Event": lambda: SimpleNamespace(synchronize=lambda: None, record=lambda: None),
        "CUDAGraph": RecordedCall,
        "graph": capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)

    def as_on_a_gpu(runtime: Any) -> dict[int, Any]:
        def compute(*arguments: Any) -> Any:
            calls.append((runtime._small, arguments, runtime._small(*arguments)))
            return calls[-1][2]

        runtime._cuda, runtime._graphs = True, Graphs(compute, runtime.device)
        recorded: dict[int, Any] = runtime._graphs._recorded
        return recorded

    return as_on_a_gpu


def made(folder: Path, size: int) -> tuple[Any, list[Pack]]:
    checkpoint = open_checkpoint(str(folder), OPTIONS)
    ids = tokenizer_of(checkpoint).encode(TEXTS, checkpoint.max_tokens)
    return checkpoint, list(packs([[Encoded(row, one) for row, one in enumerate(ids)]], size))


@pytest.mark.parametrize("model", ["minilm", "small_bge_m3"])
def test_attention_over_cumulative_lengths_gives_the_vectors_of_the_cpu(
    model: str, kernel: list[int], request: pytest.FixtureRequest
) -> None:
    import torch

    from rag_cluster.engines.encoder.attention import unpadded
    from rag_cluster.engines.encoder.runtime import Runtime
    from rag_cluster.engines.encoder.weights import load_embedder

    checkpoint, parts = made(request.getfixturevalue(model), 2000)
    place = {"device": torch.device("cpu"), "dtype": torch.float32}
    plain = Runtime(*load_embedder(checkpoint, 60), **place).run(parts, len(TEXTS))
    runtime = Runtime(*load_embedder(checkpoint, 60), **place, attend=unpadded, compiled=False)
    assert (runtime.run(parts, len(TEXTS)) * plain).sum(axis=1).min() > 0.99999
    assert max(kernel) == max(one.longest for one in parts)


def test_packs_of_any_size_are_compiled_once(small_bge_m3: Path, kernel: list[int]) -> None:
    import torch
    from torch._dynamo.testing import CompileCounterWithBackend

    from rag_cluster.engines.encoder.attention import unpadded
    from rag_cluster.engines.encoder.runtime import Runtime
    from rag_cluster.engines.encoder.weights import load_embedder

    checkpoint, parts = made(small_bge_m3, 600)
    encoder, head = load_embedder(checkpoint, 60)
    place = {"device": torch.device("cpu"), "dtype": torch.float32}
    # One thread: two would each compile what comes first.
    runtime = Runtime(encoder, head, **place, attend=unpadded, compiled=False, threads=1)
    plain = runtime.run(parts, len(TEXTS))
    counter = CompileCounterWithBackend("eager")
    torch._dynamo.reset()
    runtime._layers = torch.compile(encoder, dynamic=True, backend=counter, fullgraph=True)
    compiled = runtime.run(parts, len(TEXTS))
    assert len({(one.tokens, len(one.rows), one.longest) for one in parts}) > 3
    assert counter.frame_count == 1
    assert (compiled * plain).sum(axis=1).min() > 0.99999


def test_a_machine_that_cannot_compile_computes_without(
    small_bge_m3: Path, kernel: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    import torch
    from torch._inductor.exc import InductorError

    from rag_cluster.engines.encoder.attention import unpadded
    from rag_cluster.engines.encoder.runtime import Runtime
    from rag_cluster.engines.encoder.weights import load_embedder

    checkpoint, parts = made(small_bge_m3, 600)
    place = {"device": torch.device("cpu"), "dtype": torch.float32, "attend": unpadded, "compiled": False}
    runtime = Runtime(*load_embedder(checkpoint, 60), **place)
    plain = runtime.run(parts, len(TEXTS))

    def uncompiled(*_: object) -> None:
        raise InductorError(RuntimeError("Failed to find C compiler"), None)

    runtime._layers = uncompiled
    runtime.warm_up()
    assert "Failed to find C compiler" in caplog.text
    assert (runtime.run(parts, len(TEXTS)) * plain).sum(axis=1).min() > 0.99999


@pytest.mark.parametrize(
    ("capability", "automatic", "flash"),
    [((9, 0), "bfloat16", True), ((8, 0), "bfloat16", True), ((7, 5), "float16", False)],
)
def test_a_gpu_gets_the_type_and_the_attention_that_it_knows(
    capability: tuple[int, int], automatic: str, flash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_models()
    import torch

    from rag_cluster.engines.encoder import runtime
    from rag_cluster.engines.encoder.attention import unpadded

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    device = torch.device("cuda")
    assert str(runtime.dtype_of("auto", device)) == f"torch.{automatic}"
    assert (runtime._attention_of(device, torch.float16) is unpadded) == flash
    assert runtime._attention_of(device, torch.float32) is None


def test_the_way_of_a_gpu_gives_the_vectors_of_a_cpu(small_bge_m3: Path, gpu: Callable[[Any], dict[int, Any]]) -> None:
    import torch

    from rag_cluster.engines.encoder.attention import unpadded
    from rag_cluster.engines.encoder.runtime import Runtime
    from rag_cluster.engines.encoder.weights import load_embedder

    checkpoint, parts = made(small_bge_m3, 600)
    place = {"device": torch.device("cpu"), "dtype": torch.float32, "attend": unpadded, "compiled": False}
    runtime = Runtime(*load_embedder(checkpoint, 60), **place)
    plain = runtime.run(parts, len(TEXTS))
    recorded = gpu(runtime)
    runtime.warm_up()
    assert list(recorded) == [16, 32, 64, 128, 256, 512]
    before = sum(one.graph.replays for one in recorded.values())
    assert (runtime.run(iter(parts), len(TEXTS)) * plain).sum(axis=1).min() > 0.99999
    small = sum(one.tokens <= 512 and len(one.rows) <= 16 for one in parts)
    assert 0 < small < len(parts)
    assert sum(one.graph.replays for one in recorded.values()) == before + small
    tokenizer = tokenizer_of(checkpoint)
    for text, vector in zip(TEXTS[:20], plain, strict=False):
        (ids,) = tokenizer.encode([text], checkpoint.max_tokens)
        assert (runtime.run([pack([Encoded(0, ids)])], 1)[0] * vector).sum() > 0.99999
    with pytest.raises(ZeroDivisionError):
        runtime.run((1 / 0 for _ in range(2)), 100)  # what prepares packs fails in its thread


@pytest.mark.parametrize("model", ["minilm", "small_bge_m3"])
def test_a_pack_filled_up_for_a_graph_gives_the_same_vectors(
    model: str, kernel: list[int], request: pytest.FixtureRequest
) -> None:
    import torch

    from rag_cluster.engines.encoder import graphs
    from rag_cluster.engines.encoder.attention import unpadded
    from rag_cluster.engines.encoder.runtime import Runtime
    from rag_cluster.engines.encoder.weights import load_embedder

    folder = request.getfixturevalue(model)
    checkpoint = open_checkpoint(str(folder), OPTIONS)
    tokenizer = tokenizer_of(checkpoint)
    place = {"device": torch.device("cpu"), "dtype": torch.float32}
    runtime = Runtime(*load_embedder(checkpoint, 60), **place, attend=unpadded, compiled=False)
    queries = ["pump", "泵的维护周期是多久？", "How many berths has the harbour in all, and who counts them? " * 2, ""]
    for count, size in itertools.product((1, 4), (128, 256)):
        one = pack([Encoded(row, ids) for row, ids in enumerate(tokenizer.encode(queries[:count], 512))])
        flat = torch.empty(graphs.length(size), dtype=torch.int32)
        graphs.filled(one, size, flat.numpy())
        given = graphs.parts(flat, size)
        assert [len(part) for part in given] == [size, size, graphs.TEXTS + 2]
        with torch.inference_mode():
            vectors = runtime._small(*given, size)[:count].numpy()
        assert (vectors * runtime.run([one], count)).sum(axis=1).min() > 0.99999


def test_a_pack_that_fills_a_graph_exactly_has_no_place_beyond_its_end(kernel: list[int], small_bge_m3: Path) -> None:
    import torch

    from rag_cluster.engines.encoder import graphs
    from rag_cluster.engines.encoder.model import EmbeddingHead

    one = pack([Encoded(0, np.arange(9, dtype=np.int32)), Encoded(1, np.arange(7, dtype=np.int32))])
    flat = torch.empty(graphs.length(16), dtype=torch.int32)
    graphs.filled(one, 16, flat.numpy())
    ids, positions, bounds = graphs.parts(flat, 16)
    assert ids.tolist() == positions.tolist() == [*range(9), *range(7)]
    assert bounds.tolist() == [0, 9] + [16] * graphs.TEXTS
    states = torch.randn(16, 8)
    for pooling, first in (("cls", states[0]), ("mean", states[:9].mean(dim=0))):
        vectors = EmbeddingHead(pooling, 8)(states, bounds)
        assert np.isfinite(vectors.numpy()).all()
        assert torch.allclose(vectors[0], first / first.norm(), atol=1e-6)


def test_float8_keeps_a_product_within_a_few_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    require_models()
    import torch

    from rag_cluster.engines.encoder.precision import Float8Linear, rounded

    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 32).requires_grad_(False)
    x = torch.randn(10, 64) * torch.logspace(-3, 3, 10).unsqueeze(1)
    small, scale = rounded(x)
    assert small.dtype == torch.float8_e4m3fn
    assert torch.allclose(small.float() * scale, x, rtol=0.07, atol=1e-3 * float(x.abs().max()))

    def scaled_mm(
        a: Any, b: Any, *, scale_a: Any, scale_b: Any, bias: Any, out_dtype: Any, use_fast_accum: bool
    ) -> Any:
        """By its definition: no CPU has the operator with a scale for each row."""
        assert (a.dtype, b.dtype, scale_a.shape, scale_b.shape) == (small.dtype, small.dtype, (10, 1), (1, 32))
        return ((a.float() * scale_a) @ (b.float() * scale_b) + bias.float()).to(out_dtype)

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    product = Float8Linear(linear)(x)
    assert product.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(product.float(), linear(x)).min() > 0.99


@pytest.mark.parametrize("agrees", [True, False])
def test_16_bits_on_a_cpu_must_rank_as_32_do(agrees: bool, minilm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from rag_cluster.engines.encoder import loading

    if not agrees:
        signs = {torch.float32: 1, torch.bfloat16: -1}
        monkeypatch.setattr(loading, "_similarities", lambda runtime, _: np.eye(32) * signs[runtime.dtype])
    elif not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("how finely sums of 16 bits are rounded is the CPU's: this one has no kernels for bfloat16")
    engine = VarlenEmbedder(str(minilm), EngineOptions(device="cpu", dtype="bfloat16"))
    if agrees:
        assert engine.embed_queries(["泵"]).dtype == np.float32 and engine.model.dtype == torch.bfloat16
    else:
        with pytest.raises(InvalidSettingError, match=r"bfloat16 of .* finds other texts"):
            engine.embed_queries(["泵"])


def test_logits_of_a_16_bit_encoder_are_finer_than_16_bits(small_bge_reranker: Path) -> None:
    import torch

    from rag_cluster.engines.encoder.runtime import Runtime
    from rag_cluster.engines.encoder.weights import load_reranker

    engine = VarlenReranker(str(small_bge_reranker), OPTIONS)
    encoder, head = load_reranker(engine.checkpoint, 60)
    head.out.bias.fill_(-10.0)
    runtime = Runtime(encoder, head, device=torch.device("cpu"), dtype=torch.bfloat16)
    pairs = zip(*tokenizer_of(engine.checkpoint).encode_pairs("泵 pump?", TEXTS, 128), strict=True)
    logits = runtime.run(packs([[Encoded(row, *one) for row, one in enumerate(pairs)]], 2000), len(TEXTS))
    assert abs(logits + 10).max() < 4
    assert len(np.unique(logits)) > 0.9 * len(np.unique(TEXTS))


def test_too_little_memory_halves_the_next_packs(small_bge_m3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from rag_cluster.engines.encoder.runtime import Runtime

    engine = VarlenEmbedder(str(small_bge_m3), OPTIONS)
    before = engine.model.tokens = 20_000

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(Runtime, "_compute", full)
    for expected in (before // 2, before // 4, 4096, 4096):
        with pytest.raises(ModelUnavailableError, match="memory"):
            engine.embed_documents(["a"])
        assert engine.model.tokens == expected
