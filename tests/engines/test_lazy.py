"""Models that are loaded when first needed."""

from __future__ import annotations

import pickle
import threading
import time

import pytest

from rag_cluster.engines.lazy import Lazy
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError


class Loader:
    """Counts; picklable."""

    def __init__(self, *, seconds: float = 0, errors: tuple[BaseException, ...] = ()) -> None:
        self.seconds, self.errors, self.calls = seconds, list(errors), 0

    def __call__(self) -> str:
        self.calls += 1
        time.sleep(self.seconds)
        if self.errors:
            raise self.errors.pop(0)
        return "model"


def test_many_threads_load_once() -> None:
    loader = Loader(seconds=0.1)
    lazy = Lazy(loader, "m", 30)
    threads = [threading.Thread(target=lazy.get) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (lazy.get(), loader.calls) == ("model", 1)


def test_what_takes_too_long_is_an_outage_and_is_waited_for_again_not_begun_again() -> None:
    gate = threading.Event()
    calls = []

    def load() -> str:
        calls.append(1)
        gate.wait(30)
        return "model"

    lazy = Lazy(load, "big-model", 0.05)
    with pytest.raises(ModelUnavailableError, match="big-model was not loaded within"):
        lazy.get()
    gate.set()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            assert lazy.get() == "model"
            break
        except ModelUnavailableError:
            continue
    assert len(calls) == 1


def test_what_failed_is_tried_again() -> None:
    lazy = Lazy(Loader(errors=(OSError("disk"), InvalidSettingError("no such device"))), "m", 30)
    with pytest.raises(ModelUnavailableError, match="disk"):
        lazy.get()
    with pytest.raises(InvalidSettingError):
        lazy.get()
    assert lazy.get() == "model"


def test_a_copy_in_another_process_loads_anew() -> None:
    lazy = Lazy(Loader(), "m", 30)
    lazy.get()
    copy = pickle.loads(pickle.dumps(lazy))
    assert copy._future is None
    with copy.exclusive() as model:
        assert model == "model"
