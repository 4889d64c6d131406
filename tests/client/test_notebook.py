"""jobs/notebook.ipynb as it stands: its cells run in a real kernel, on a data directory of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from rag_cluster.stores.embedded import EmbeddedStores

NOTEBOOK = Path(__file__).parents[2] / "jobs" / "notebook.ipynb"


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="rag-nb-"))
    monkeypatch.setenv("RAG_DATA_DIR", str(home))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield home
    EmbeddedStores(home).down()
    shutil.rmtree(home, ignore_errors=True)


def _cells(notebook: Any) -> dict[str, str]:
    """Source of each code cell -> what it showed: HTML, else text; what was written to its streams too."""
    shown = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts = [o.get("text") or "".join(o.get("data", {}).values()) for o in cell.outputs]
            shown[cell.source] = "".join(parts)
    return shown


def _shown(cells: dict[str, str], part: str) -> str:
    return next(text for source, text in cells.items() if part in source)


def _check(cells: dict[str, str]) -> None:
    answer = _shown(cells, "岸桥制动器间隙")
    assert "1.2毫米" in answer and "<b>[1]</b></sup>" in answer and "岸桥设备维护手册.docx" in answer
    assert "p. 7" in _shown(cells, "typhoon Meiling") and "refused" in _shown(cells, "football")
    assert "throughput_2025.xlsx" in _shown(cells, "found.to_pandas()")
    assert "berth-7.txt" in _shown(cells, "ask_all") and "SUCCEEDED" in _shown(cells, "add_texts")


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_the_notebook_runs_from_a_fresh_data_directory_and_leaves_nothing_running(home: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": str(home)}}).execute()
    cells = _cells(notebook)
    _check(cells)
    assert "8 ready" in _shown(cells, "rag.ingest") and "arning" not in "".join(cells.values())
    assert EmbeddedStores(home).running() == frozenset()


def test_the_notebook_shows_answers_and_citations_before_it_is_run_and_no_path_of_a_machine() -> None:
    _check(_cells(nbformat.read(NOTEBOOK, as_version=4)))
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert "file://" not in text and str(Path.home()) not in text and str(NOTEBOOK.parents[1]) not in text
