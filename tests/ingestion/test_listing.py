"""What a run looks at: locations, user manifests and patterns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.documents import SourceFile
from rag_cluster.domain.ports import InputProblem
from rag_cluster.ingestion.listing import Patterns, list_inputs
from rag_cluster.stores.inputs import FsspecInputFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.pdf", "B.PDF", "notes.md", "drafts/a.pdf", "drafts/deep/c.pdf", "2024/q1/报告 #1.docx"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "corpus"


def taken(folder: Path, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> set[str]:
    rows = list_inputs(FsspecInputFiles(), [str(folder)], patterns=Patterns(include, exclude))
    return {row.filename for row in rows if isinstance(row, SourceFile)}


def manifest(folder: Path, rows: list[dict[str, Any]], name: str = "list.jsonl") -> list[SourceFile | InputProblem]:
    path = folder / name
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return list(list_inputs(FsspecInputFiles(), [], [str(path)]))


def test_without_patterns_every_file_is_taken(folder: Path) -> None:
    assert len(taken(folder)) == 5  # two are of one name


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (("*.pdf",), (), {"a.pdf", "B.PDF", "c.pdf"}),
        ((), ("*.pdf",), {"notes.md", "报告 #1.docx"}),
        (("*.pdf",), ("drafts/**",), {"a.pdf", "B.PDF"}),
        (("drafts/*.pdf",), (), {"a.pdf"}),
        (("2024/**/*.docx",), (), {"报告 #1.docx"}),
        (("报告 #?.docx",), (), {"报告 #1.docx"}),
        (("nothing",), (), set()),
    ],
)
def test_a_pattern_is_of_the_name_or_with_a_slash_of_the_path(
    folder: Path, include: tuple[str, ...], exclude: tuple[str, ...], names: set[str]
) -> None:
    assert taken(folder, include, exclude) == names


def test_what_a_pattern_leaves_out_is_a_row_that_names_the_rule(folder: Path) -> None:
    rows = list(list_inputs(FsspecInputFiles(), [str(folder)], patterns=Patterns(exclude=("*.md",))))
    (left_out,) = [row for row in rows if isinstance(row, InputProblem)]
    assert left_out.error_type == "skipped_excluded"
    assert "*.md" in left_out.message and left_out.uri.endswith("notes.md")


def test_a_manifest_gives_each_of_its_files_its_attributes(folder: Path) -> None:
    (row,) = manifest(
        folder,
        [
            {
                "uri": "a.pdf",
                "acl": ["finance"],
                "department": "港口",
                "security_level": 2,
                "metadata": {"year": 2025},
                "chunking": "sentence",
            }
        ],
    )
    assert isinstance(row, SourceFile)
    assert row.access == AccessAttributes(("finance",), "港口", 2)
    assert (row.metadata, row.chunking_strategy) == ({"year": 2025}, "sentence")


def test_a_manifest_row_of_a_folder_stands_for_all_its_files(folder: Path) -> None:
    rows = manifest(folder, [{"uri": "drafts", "acl": []}])
    assert {row.filename for row in rows if isinstance(row, SourceFile)} == {"a.pdf", "c.pdf"}
    assert all(row.access.acl == () for row in rows if isinstance(row, SourceFile))


def test_csv_and_parquet_say_the_same_as_json_lines(folder: Path) -> None:
    table = folder / "list.csv"
    table.write_text('uri,acl,security_level,metadata\na.pdf,finance;audit,1,"{""year"": 2025}"\nnotes.md,,,\n')
    columns = folder / "list.parquet"
    rows = [
        {"uri": "a.pdf", "acl": ["finance", "audit"], "security_level": 1, "metadata": {"year": 2025}},
        {"uri": "notes.md", "acl": None, "security_level": None, "metadata": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), columns)
    from_csv, from_parquet = (list(list_inputs(FsspecInputFiles(), [], [str(path)])) for path in (table, columns))
    assert from_csv == from_parquet == manifest(folder, rows)
    first, second = from_csv
    assert isinstance(first, SourceFile) and isinstance(second, SourceFile)
    assert first.access == AccessAttributes(("finance", "audit"), None, 1)
    assert (second.access, second.metadata) == (AccessAttributes(), {})


@pytest.mark.parametrize(
    "row",
    [
        {"uri": ""},
        {"acl": ["finance"]},
        {"uri": "a.pdf", "owner": "me"},
        {"uri": "a.pdf", "security_level": "high"},
        {"uri": "a.pdf", "security_level": -1},
        {"uri": "a.pdf", "acl": [1]},
        {"uri": "a.pdf", "metadata": "not an object"},
        {"uri": "a.pdf", "chunking": 7},
    ],
)
def test_a_row_that_cannot_be_understood_is_a_problem_with_its_number_and_the_others_go_on(
    folder: Path, row: dict[str, Any]
) -> None:
    problem, fine = manifest(folder, [row, {"uri": "notes.md"}])
    assert isinstance(problem, InputProblem) and isinstance(fine, SourceFile)
    assert problem.error_type == "invalid_manifest_row" and problem.uri.endswith("list.jsonl#1")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.csv", "path\na.pdf\n"),
        ("list.csv", "uri,colour\na.pdf,red\n"),
        ("list.parquet", "no parquet"),
        ("list.jsonl", '{"uri": "a.pdf"'),
        ("list.txt", "a.pdf"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_one_problem(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    (problem,) = list_inputs(FsspecInputFiles(), [], [str(folder / name)])
    assert isinstance(problem, InputProblem) and problem.uri.endswith(name)


def test_a_missing_manifest_is_one_problem_and_the_inputs_are_listed(folder: Path) -> None:
    rows = list(list_inputs(FsspecInputFiles(), [str(folder / "notes.md")], [str(folder / "missing.csv")]))
    assert [type(row) for row in rows] == [SourceFile, InputProblem]
