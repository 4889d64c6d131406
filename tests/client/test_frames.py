"""What a notebook gives: DataFrames, groups, patterns, files."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rag_cluster.client.ingest import frame_as_manifest, groups, patterns
from rag_cluster.client.uploads import Upload, texts_as_uploads
from rag_cluster.domain.documents import SourceFile
from rag_cluster.domain.ports import InputProblem
from rag_cluster.errors import InvalidRequestError
from rag_cluster.ingestion.listing import list_inputs
from rag_cluster.stores.inputs import FsspecInputFiles


def listed(frame: pd.DataFrame) -> list[SourceFile | InputProblem]:
    with frame_as_manifest(frame) as manifest:
        return list(list_inputs(FsspecInputFiles(), [], [manifest]))


def test_cells_of_different_types_are_each_rows_own(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(name)
    metadata: list[Any] = [
        {"year": 2024, "day": dt.date(2024, 5, 1)},
        {"year": "2024", "at": pd.Timestamp("2024-05-01"), "tags": np.array(["a", "b"]), "no": pd.NA, "nor": pd.NaT},
        {"share": float("nan")},
        None,
    ]
    frame = pd.DataFrame({"uri": [tmp_path / f"{n}.txt" for n in "abcd"], "metadata": metadata})
    first, second, problem, last = listed(frame)
    assert isinstance(first, SourceFile) and first.metadata == {"year": 2024, "day": "2024-05-01"}
    assert isinstance(second, SourceFile)
    assert second.metadata == {"year": "2024", "at": "2024-05-01T00:00:00", "tags": ["a", "b"]}
    assert isinstance(problem, InputProblem) and problem.uri.endswith("#3")
    assert isinstance(last, SourceFile) and last.metadata == {}


def test_a_frame_that_is_no_manifest_is_refused_before_anything_is_listed() -> None:
    for columns in ({"path": ["a.txt"]}, {"uri": ["a.txt"], "colour": ["red"]}, {"acl": [["staff"]]}):
        with pytest.raises(InvalidRequestError, match="column"):
            listed(pd.DataFrame(columns))


def test_a_set_of_groups_is_a_list_of_them_and_a_cell_that_is_no_data_names_its_row(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A quay.")
    (file,) = listed(pd.DataFrame({"uri": [tmp_path / "a.txt"], "acl": [{"staff", "audit"}]}))
    assert isinstance(file, SourceFile) and file.access is not None and file.access.acl == ("audit", "staff")
    for wrong in ({"x": object()}, {(1, 2): "x"}):
        with pytest.raises(InvalidRequestError, match=r"Row 2 of the DataFrame \(.*b\.txt\)"):
            listed(pd.DataFrame({"uri": ["a.txt", "b.txt"], "metadata": [{}, wrong]}))


def test_a_text_of_groups_or_patterns_is_not_a_list_of_its_letters() -> None:
    assert groups("staff") == ("staff",) and groups("finance;audit") == groups('["finance", "audit"]') == (
        "finance",
        "audit",
    )
    with pytest.raises(InvalidRequestError, match="JSON"):
        groups("[finance")
    assert groups(["finance"]) == ("finance",) and groups([]) == () and groups(None) is None
    assert patterns("*.pdf") == ("*.pdf",) and patterns(["*.pdf", "*.md"]) == ("*.pdf", "*.md")
    (upload,) = texts_as_uploads({"text": "A quay.", "acl": "finance;audit"}, {})
    assert upload.fields()["acl"] == '["finance", "audit"]'


def test_a_file_that_is_gone_when_its_turn_comes_is_refused_like_any_other(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be read"), Upload("a.txt", tmp_path / "a.txt").opened():
        pass
