"""A model that is loaded once in a process, when it is first needed, within a time limit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Generic, TypeVar

from rag_cluster.errors import ModelUnavailableError, RagClusterError

T = TypeVar("T")


class Lazy(Generic[T]):
    """Picklable with its loader; a copy in another process loads anew. Thread-safe.

    name: of the model, for errors. timeout: seconds.
    """

    def __init__(self, load: Callable[[], T], name: str, timeout: float) -> None:
        self._load = load
        self._name = name
        self._timeout = timeout
        self._lock, self._use = threading.Lock(), threading.Lock()
        self._future: Future[T] | None = None

    def get(self) -> T:
        """The model. ModelUnavailableError when loading fails or takes longer; what still loads is waited for again by
        the next call, and what failed is tried again."""
        future = self._begun()
        try:
            return future.result(self._timeout)
        except FutureTimeoutError:
            raise ModelUnavailableError(f"{self._name} was not loaded within {self._timeout:g} s") from None
        except RagClusterError:
            self._forget(future)
            raise
        except (OSError, RuntimeError, ValueError, ImportError, KeyError, AttributeError, TypeError) as error:
            # What libraries raise for a model that they do not understand.
            self._forget(future)
            raise ModelUnavailableError(f"{self._name} cannot be loaded: {type(error).__name__} {error}") from error

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[T]:
        """The model, for one thread at a time."""
        model = self.get()
        with self._use:
            yield model

    def _begun(self) -> Future[T]:
        with self._lock:
            if self._future is None:
                self._future = Future()
                threading.Thread(target=self._run, args=(self._future,), name="model-loading", daemon=True).start()
            return self._future

    def _run(self, future: Future[T]) -> None:
        try:
            future.set_result(self._load())
        except BaseException as error:  # raised by `get`
            future.set_exception(error)

    def _forget(self, future: Future[T]) -> None:
        with self._lock:
            if self._future is future:
                self._future = None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_lock", "_use", "_future")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock, self._use, self._future = threading.Lock(), threading.Lock(), None
