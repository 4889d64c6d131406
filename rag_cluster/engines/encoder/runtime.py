"""Runs packs on a device. Preparing them (tokenising, packing, pinned memory) overlaps with computing; results come
back in one copy.

On a GPU: 16-bit weights, FlashAttention without padding, compiled layers for large packs, CUDA graphs for small ones.
On a CPU: float32, texts of equal length as one batch.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from rag_cluster.engines.encoder import attention
from rag_cluster.engines.encoder.graphs import Graphs
from rag_cluster.engines.encoder.model import Encoder
from rag_cluster.engines.encoder.packing import Pack
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError

T = TypeVar("T")

GPU_TOKENS = 131_072
CPU_TOKENS = 4096
"""Tokens of one pack: what a GPU needs to be busy, and what a CPU's caches like."""
_AHEAD = 3
"""Packs that are prepared while one is computed."""
_INLINE = 32
"""So few texts are prepared before they are computed: a thread would take longer to start."""
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Batch:
    """A pack's tensors in host memory. groups: for CPUs, see `attention.grouped`."""

    ids: torch.Tensor
    positions: torch.Tensor
    types: torch.Tensor | None
    bounds: torch.Tensor
    longest: int
    groups: Sequence[tuple[int, int, int]]


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
    """auto: bfloat16 on a GPU, float32 on a CPU. float8 computes its linear layers so and the rest in bfloat16."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name == "float8":
        if device.type != "cuda":
            raise InvalidSettingError("float8 needs a GPU")
        return torch.bfloat16
    if name not in _DTYPES:
        raise InvalidSettingError(f"{name!r} is no type: auto, float32, bfloat16, float16 or float8")
    return _DTYPES[name]


class Runtime:
    """An encoder and its head on a device. Thread-safe: one call runs at a time.

    threads: of a CPU. compiled: whether large packs run through torch.compile (GPU).
    """

    def __init__(
        self,
        encoder: Encoder,
        head: nn.Module,
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
        self._cuda = device.type == "cuda"
        self._encoder = encoder.to(device=device, dtype=dtype)
        self._head = head.to(device=device, dtype=dtype)
        self._attend = attend or _attention_of(device, dtype)
        self._layers: Callable[..., torch.Tensor] = self._encoder
        self._graphs: Graphs | None = None
        self._lock = threading.Lock()
        self.tokens = tokens or (GPU_TOKENS if self._cuda else CPU_TOKENS)
        if self._attend is attention.unpadded:
            if compiled:
                self._layers = torch.compile(self._encoder, dynamic=True)
            if self._cuda:
                self._graphs = Graphs(self._small, device)
        if not self._cuda:
            # One number for the whole process; Ray gives a worker of one CPU one thread unless told otherwise.
            torch.set_num_threads(threads)

    @property
    def parameters(self) -> int:
        """How many weights."""
        return sum(weight.numel() for module in (self._encoder, self._head) for weight in module.parameters())

    @property
    def memory(self) -> int:
        """Bytes that the weights take."""
        modules = (self._encoder, self._head)
        return sum(weight.nbytes for module in modules for weight in (*module.parameters(), *module.buffers()))

    def run(self, packs: Iterable[Pack], count: int, width: int) -> npt.NDArray[np.float32]:
        """float32 (count, width): the head's result for each row. ModelUnavailableError when the device fails.

        packs: consumed in a thread while earlier ones are computed.
        """
        out = np.zeros((count, width), dtype=np.float32)
        rows: list[npt.NDArray[np.intp]] = []
        results: list[torch.Tensor] = []
        prepared: Iterator[tuple[Batch, npt.NDArray[np.intp]]] = map(self._pinned, packs)
        if count > _INLINE:
            prepared = ahead(prepared, _AHEAD)
        try:
            with self._lock, torch.inference_mode():
                for batch, places in prepared:
                    rows.append(places)
                    results.append(self._compute(batch))
                if results:
                    out[np.concatenate(rows)] = torch.cat(results).cpu().numpy()
        except torch.OutOfMemoryError as error:
            raise ModelUnavailableError(
                f"{self.device} has too little memory for {self.tokens} tokens at once"
            ) from error
        except torch.AcceleratorError as error:
            raise ModelUnavailableError(f"{self.device} failed: {error}") from error
        finally:
            if isinstance(prepared, Generator):
                prepared.close()
        return out

    def _pinned(self, pack: Pack) -> tuple[Batch, npt.NDArray[np.intp]]:
        """The pack's tensors in host memory that the GPU can read while it computes."""
        types = pack.types if self._encoder.types.num_embeddings > 1 else None
        parts = [torch.from_numpy(part) for part in (pack.ids, pack.positions, pack.bounds)]
        kinds = None if types is None else torch.from_numpy(types)
        if self._cuda:
            parts = [part.pin_memory() for part in parts]
            kinds = None if kinds is None else kinds.pin_memory()
        groups = () if self._cuda else pack.groups()
        return Batch(parts[0], parts[1], kinds, parts[2], pack.longest, groups), pack.rows

    def _compute(self, batch: Batch) -> torch.Tensor:
        """(n, width) on the device; does not wait for it."""
        if self._graphs is not None and self._graphs.fits(batch.ids, batch.bounds, batch.types):
            return self._graphs.run(batch.ids, batch.bounds)
        ids, positions, bounds = (
            part.to(self.device, non_blocking=True) for part in (batch.ids, batch.positions, batch.bounds)
        )
        types = None if batch.types is None else batch.types.to(self.device, non_blocking=True)
        attend = self._attend or attention.grouped(batch.groups)
        states = self._layers(ids, positions, types, bounds, batch.longest, attend)
        result: torch.Tensor = self._head(states, bounds)
        return result

    def _small(self, ids: torch.Tensor, positions: torch.Tensor, bounds: torch.Tensor, longest: int) -> torch.Tensor:
        """What a CUDA graph records: the layers as they are, since a graph needs no compiler to be fast."""
        result: torch.Tensor = self._head(self._encoder(ids, positions, None, bounds, longest, self._attend), bounds)
        return result


def _attention_of(device: torch.device, dtype: torch.dtype) -> attention.Attend | None:
    """None: `attention.grouped`, which is made for each pack."""
    if device.type != "cuda":
        return None
    return attention.one_by_one if dtype == torch.float32 else attention.unpadded


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
