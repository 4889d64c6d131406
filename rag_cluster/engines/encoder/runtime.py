"""Runs packs on a device. Preparing them (tokenising, packing, pinned memory) overlaps with computing; results come
back in one copy.

On a GPU from Ampere on: 16-bit weights, FlashAttention without padding, compiled layers for large packs, CUDA graphs
for small ones. Elsewhere texts of equal length are one batch of attention; on a CPU in float32, a pack a thread.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from rag_cluster.engines.encoder import attention
from rag_cluster.engines.encoder.graphs import TOKENS as GRAPH_TOKENS
from rag_cluster.engines.encoder.graphs import Graphs
from rag_cluster.engines.encoder.model import EmbeddingHead, Encoder, ScoreHead
from rag_cluster.engines.encoder.packing import Encoded, Pack, pack
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError

log = logging.getLogger(__name__)

T = TypeVar("T")
Result = tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]
"""(rows, what the head gave for them)."""

GPU_TOKENS = 131_072
CPU_TOKENS = 2048
"""Tokens of one pack: what a GPU needs to be busy, and what a CPU's caches like."""
_FEWEST_TOKENS = 4096
"""Where halving a pack after an outage of memory ends."""
_AHEAD = 3
"""Packs that are prepared while one is computed."""
_INLINE = 32
"""So few texts are prepared before they are computed: a thread would take longer to start."""
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Batch:
    """A pack, and its ids, positions, bounds and types, if any, as tensors in host memory; none for a CUDA graph."""

    pack: Pack
    tensors: tuple[torch.Tensor, ...]


def device_of(name: str) -> torch.device:
    """auto: CUDA where there is one. InvalidSettingError when the machine has no such device."""
    chosen = name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(chosen)
    except RuntimeError as error:
        raise InvalidSettingError(f"{name!r} is no device: auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidSettingError(
            f"There is no device {name}: this machine has {torch.cuda.device_count()} CUDA devices"
        )
    return device


def dtype_of(name: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 on a GPU, float16 on one that does not compute it, float32 on a CPU. float8 computes its linear
    layers so and the rest in bfloat16."""
    if name == "auto":
        return torch.float32 if device.type != "cuda" else torch.bfloat16 if _is_ampere(device) else torch.float16
    if name == "float8":
        if device.type != "cuda":
            raise InvalidSettingError("float8 needs a GPU")
        return torch.bfloat16
    if name not in _DTYPES:
        raise InvalidSettingError(f"{name!r} is no type: auto, float32, bfloat16, float16 or float8")
    return _DTYPES[name]


class Runtime:
    """An encoder and its head on a device. Thread-safe: one call runs at a time.

    dtype: of the encoder; the head's weights stay as they are.
    threads: of a CPU: so many packs are computed at once, each by one thread. Threads inside an operation would wait
    for each other after each, ten times as long where anything else runs on the machine.
    compiled: whether large packs run through torch.compile (GPU). tokens: of one pack, at most; 0: the device's usual.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: EmbeddingHead | ScoreHead,
        *,
        device: torch.device,
        dtype: torch.dtype,
        threads: int = 2,
        tokens: int = 0,
        compiled: bool = True,
        attend: attention.Attend | None = None,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.width = head.width
        self.threads = threads
        self.tokens = tokens or (GPU_TOKENS if device.type == "cuda" else CPU_TOKENS)
        self._cuda = device.type == "cuda"
        self._encoder: Encoder = encoder.to(device=device, dtype=dtype)
        self._head: EmbeddingHead | ScoreHead = head.to(device=device)
        self._attend = attend or _attention_of(device, dtype)
        self._layers: Callable[..., torch.Tensor] = self._encoder
        self._graphs: Graphs | None = None
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        if self._attend is attention.unpadded:
            if compiled:
                self._layers = torch.compile(self._encoder, dynamic=True)
            if self._cuda:
                self._graphs = Graphs(self._small, device)

    @property
    def encoder(self) -> Encoder:
        """The layers, for a change of their precision before anything is run."""
        return self._encoder

    @property
    def parameters(self) -> int:
        """How many weights."""
        return sum(tensor.numel() for tensor in self._tensors())

    @property
    def memory(self) -> int:
        """Bytes that the weights take."""
        return sum(tensor.nbytes for tensor in self._tensors())

    def run(self, packs: Iterable[Pack], count: int) -> npt.NDArray[np.float32]:
        """float32 (count, width): the head's result for each row.

        packs: made while earlier ones are computed. ModelUnavailableError when the device fails; after an outage of
        memory the next packs should be half as large, which `tokens` then says.
        """
        out = np.zeros((count, self.width), dtype=np.float32)
        try:
            with self._lock:
                results = self._on_gpu(packs, count) if self._cuda else self._on_cpu(packs)
        except torch.OutOfMemoryError as error:
            tokens, self.tokens = self.tokens, max(self.tokens // 2, _FEWEST_TOKENS)
            raise ModelUnavailableError(f"{self.device} has too little memory for {tokens} tokens") from error
        except torch.AcceleratorError as error:
            raise ModelUnavailableError(f"{self.device} failed: {error}") from error
        for rows, result in results:
            out[rows] = result
        return out

    def warm_up(self) -> None:
        """Compile and record, so that no request waits for it; where that cannot be compiled (Triton needs a C compiler
        and Python's headers), compute without. Nothing to do on a CPU."""
        if self._attend is not attention.unpadded:
            return
        try:
            self._meet_large_packs()
        except RuntimeError as error:
            if self._layers is self._encoder:
                raise
            log.warning("torch.compile fails here, computing without it, a little slower: %s", error)
            self._layers = self._encoder
            self._meet_large_packs()
        for size in GRAPH_TOKENS:
            self._meet([size], typed=False)

    def _meet_large_packs(self) -> None:
        typed = isinstance(self._head, ScoreHead)  # pairs have token types
        for lengths in ([200, 180, 440], [90] * 40, [33] * 65):
            self._meet(lengths, typed=typed)

    def _meet(self, lengths: Sequence[int], *, typed: bool) -> None:
        """Run a pack of blank texts of these lengths, as far as the model has positions."""
        longest = self._encoder.places.num_embeddings - self._encoder.first_position
        blank = [np.zeros(min(length, longest), dtype=np.int32) for length in lengths]
        self.run([pack([Encoded(row, ids, ids if typed else None) for row, ids in enumerate(blank)])], len(blank))

    def _tensors(self) -> Iterator[torch.Tensor]:
        for module in (self._encoder, self._head):
            yield from module.parameters()
            yield from module.buffers()

    def _on_cpu(self, packs: Iterable[Pack]) -> list[Result]:
        # For the whole process: another library may have set it to something else since.
        torch.set_num_threads(1)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="encoder")
        # Takes all packs at once, so that they are made while the first ones are computed.
        return list(self._pool.map(self._on_one_thread, packs))

    def _on_one_thread(self, pack: Pack) -> Result:
        with torch.inference_mode():
            return pack.rows, self._compute(self._batch(pack)).numpy()

    def _on_gpu(self, packs: Iterable[Pack], count: int) -> list[Result]:
        rows: list[npt.NDArray[np.intp]] = []
        results: list[torch.Tensor] = []
        batches = (self._batch(pack) for pack in packs)
        prepared = ahead(batches, _AHEAD) if count > _INLINE else batches
        with torch.inference_mode(), torch.cuda.device(self.device), contextlib.closing(prepared):
            for batch in prepared:
                rows.append(batch.pack.rows)
                results.append(self._compute(batch))
            return [(np.concatenate(rows), torch.cat(results).cpu().numpy())] if rows else []

    def _batch(self, pack: Pack) -> Batch:
        """The pack's tensors in host memory, for a GPU in such that it can read while it computes."""
        if self._encoder.types.num_embeddings == 1 and pack.types is not None:
            pack = replace(pack, types=None)
        if self._graphs is not None and self._graphs.fits(pack):
            return Batch(pack, ())
        arrays = (pack.ids, pack.positions, pack.bounds, *(() if pack.types is None else (pack.types,)))
        tensors = (torch.from_numpy(array) for array in arrays)
        return Batch(pack, tuple(tensor.pin_memory() if self._cuda else tensor for tensor in tensors))

    def _compute(self, batch: Batch) -> torch.Tensor:
        """(n, width) on the device; does not wait for it."""
        pack = batch.pack
        if self._graphs is not None and not batch.tensors:
            return self._graphs.run(pack)
        ids, positions, bounds, *rest = (tensor.to(self.device, non_blocking=True) for tensor in batch.tensors)
        types = rest[0] if rest else None
        attend = self._attend or attention.grouped(pack.groups())
        states = self._layers(ids, positions, types, bounds, pack.longest, attend)
        result: torch.Tensor = self._head(states, bounds)
        return result

    def _small(self, ids: torch.Tensor, positions: torch.Tensor, bounds: torch.Tensor, longest: int) -> torch.Tensor:
        """What a CUDA graph records: the layers as they are, since a graph needs no compiler to be fast."""
        result: torch.Tensor = self._head(self._encoder(ids, positions, None, bounds, longest, self._attend), bounds)
        return result


def _attention_of(device: torch.device, dtype: torch.dtype) -> attention.Attend | None:
    """None: `attention.grouped`, which is made for each pack; FlashAttention takes 16 bits, from Ampere on."""
    flash = device.type == "cuda" and dtype != torch.float32 and _is_ampere(device)
    return attention.unpadded if flash else None


def _is_ampere(device: torch.device) -> bool:
    """Or later."""
    capability: tuple[int, int] = torch.cuda.get_device_capability(device)
    return capability >= (8, 0)


def ahead(items: Iterator[T], size: int) -> Generator[T, None, None]:
    """The items, made in a thread, up to `size` of them in advance. Its errors are raised here; closing ends it."""
    ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(maxsize=size)
    closed = threading.Event()

    def put(item: T | None, error: BaseException | None) -> None:
        while not closed.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((item, error), timeout=0.1)
                return

    def make() -> None:
        try:
            for item in items:
                put(item, None)
                if closed.is_set():
                    return
            put(None, None)
        except BaseException as error:  # raised again by the consumer
            put(None, error)

    thread = threading.Thread(target=make, name="packing", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        closed.set()
        thread.join()
