"""How a run is followed: an HTML line in a notebook, rich's bar on a terminal, nothing where nobody looks."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from rag_cluster.client import html
from rag_cluster.ingestion.progress import RunProgress
from rag_cluster.ingestion.report import OUTCOMES
from rag_cluster.serving.schemas import RunResponse

POLL_SECONDS = 0.5


class Show(Protocol):
    """Takes what is known: a state of the job or run, and the run as soon as there is one."""

    def __call__(self, state: str, run: RunResponse | None) -> None:
        """Show it."""


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def without_advice() -> Iterator[None]:
    """Imports in a notebook without the advice of Ray and tqdm to install ipywidgets, which nothing here needs."""
    logging.getLogger("ray.widgets.util").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        yield


@contextlib.contextmanager
def shown(label: str, *, wanted: bool = True) -> Iterator[Show]:
    """A way to show a run's progress, cleared away at the end."""
    if not wanted:
        yield _nothing
    elif in_notebook():
        with _notebook(label) as show:
            yield show
    else:
        with RunProgress(label, lambda counts: None) as progress:
            yield lambda state, run: progress.update(Counter(run.counts if run else {}), None)


@contextlib.contextmanager
def polled(look: Callable[[], RunResponse | None], show: Show) -> Iterator[None]:
    """Show what `look` finds, from a thread, while the caller is busy with the run itself."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(POLL_SECONDS):
            run = look()
            show(run.status if run else "starting", run)

    thread = threading.Thread(target=watch, name="rag-cluster-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def summary(run: RunResponse) -> str:
    """Counts in one line."""
    counts = Counter(run.counts)
    outcomes = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])
    return f"{counts['listed']} documents{f': {outcomes}' if outcomes else ''}; {counts['embedded_chunks']} chunks"


def _nothing(state: str, run: RunResponse | None) -> None:
    return


@contextlib.contextmanager
def _notebook(label: str) -> Iterator[Show]:
    # IPython's own display and not rich's: that needs ipywidgets.
    notebook: Any = importlib.import_module("IPython.display")
    handle = notebook.display(notebook.HTML(html.frame(html.note(f"{label}: starting"))), display_id=True)

    def show(state: str, run: RunResponse | None) -> None:
        line = f"{label}: {state.lower()}" + (f", {summary(run)}" if run else "")
        handle.update(notebook.HTML(html.frame("<progress></progress>", html.note(line))))

    try:
        yield show
    finally:
        handle.update(notebook.HTML(""))
