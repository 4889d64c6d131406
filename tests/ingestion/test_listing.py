"""What a run looks at: locations, user manifests and patterns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.documents import SourceFile
from rag_cluster.domain.ports import InputProblem
from rag_cluster.errors import NotFoundError
from rag_cluster.ingestion.listing import Patterns, list_inputs, require_some
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


def test_what_is_there_by_path_glob_url_or_manifest_is_something_to_ingest(folder: Path) -> None:
    (folder / "list.csv").write_text("uri\na.pdf\n")
    manifest = folder / "list.csv"
    for locations, manifests in (
        ([str(folder), str(folder / "typo")], []),
        ([str(folder / "*.pdf")], []),
        ([folder.as_uri()], []),
        (["s3://bucket/prefix"], []),
        ([], [str(manifest)]),
        ([], [manifest.as_uri()]),
    ):
        require_some(FsspecInputFiles(), locations, manifests)
    for locations, manifests in (([str(folder / "typo")], []), ([str(folder / "*.xyz")], []), ([], [str(folder)])):
        with pytest.raises(NotFoundError):
            require_some(FsspecInputFiles(), locations, manifests)


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
        {"uri": "a.pdf", "security_level": [1]},
        {"uri": "a.pdf", "security_level": float("inf")},
        {"uri": "a.pdf", "security_level": 1.5},
        {"uri": "a.pdf", "security_level": 10**30},
        {"uri": "a.pdf", "acl": "finance;"},
        {"uri": "a.pdf", "acl": [" "]},
        {"uri": "a.pdf", "acl": [f"{n} {'x' * 90}" for n in range(20)]},
        {"uri": "a.pdf", "department": "a\0b"},
        {"uri": "a\ud800.pdf"},
        {"uri": "a\0.pdf"},
        {"uri": ["a.pdf"]},
        {"uri": "a.pdf", "metadata": {"x": float("nan")}},
        {"uri": "a.pdf", "metadata": {"x": "\0"}},
        {"uri": "a.pdf", "metadata": {"x": "y" * 70_000}},
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
        ("list.csv", "uri,uri\na.pdf,b.pdf\n"),
        ("list.csv", 'uri\n"a.pdf\n'),
        ("list.txt", "a.pdf"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_one_problem(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    (problem,) = list_inputs(FsspecInputFiles(), [], [str(folder / name)])
    assert isinstance(problem, InputProblem) and problem.uri.endswith(name)


@pytest.mark.parametrize("line", ["no json", '{"uri": "a.pdf"', '["a.pdf"]', '"a.pdf"', "[" * 100_000])
def test_a_line_that_is_no_object_is_the_problem_of_its_row_alone(folder: Path, line: str) -> None:
    (folder / "list.jsonl").write_text(f'{{"uri": "a.pdf"}}\n\n{line}\n{{"uri": "notes.md"}}\n')
    first, problem, last = list_inputs(FsspecInputFiles(), [], [str(folder / "list.jsonl")])
    assert isinstance(problem, InputProblem) and problem.uri.endswith("#2")
    assert isinstance(first, SourceFile) and isinstance(last, SourceFile)


def test_a_line_of_a_table_with_too_many_cells_is_a_problem_and_one_with_too_few_is_not(folder: Path) -> None:
    (folder / "list.csv").write_text("uri,acl\na.pdf,finance,audit\nnotes.md\n")
    problem, row = list_inputs(FsspecInputFiles(), [], [str(folder / "list.csv")])
    assert isinstance(problem, InputProblem) and "more cells than columns" in problem.message
    assert isinstance(row, SourceFile)


def test_a_table_of_another_encoding_says_what_to_do(folder: Path) -> None:
    (folder / "list.csv").write_text("uri,department\na.pdf,港口\n", encoding="gbk")
    (problem,) = list_inputs(FsspecInputFiles(), [], [str(folder / "list.csv")])
    assert isinstance(problem, InputProblem) and "UTF-8" in problem.message


def test_a_frame_as_pandas_writes_it_is_a_manifest(folder: Path) -> None:
    path = folder / "list.parquet"
    rows = [
        {"uri": "a.pdf", "security_level": 2.0, "metadata": {"day": date(2024, 5, 1), "price": Decimal("1.50")}},
        {"uri": "notes.md", "security_level": None, "metadata": None, "__index_level_0__": 7},
    ]
    columns = ("uri", "security_level", "metadata", "__index_level_0__")
    pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in rows]), path)
    first, second = list_inputs(FsspecInputFiles(), [], [str(path)])
    assert isinstance(first, SourceFile) and isinstance(second, SourceFile)
    assert (first.access.security_level, first.metadata) == (2, {"day": "2024-05-01", "price": "1.50"})
    assert (second.access, second.metadata) == (AccessAttributes(), {})


def test_a_map_is_metadata_too(folder: Path) -> None:
    metadata = pa.array([[("year", 2025)], []], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"uri": ["a.pdf", "notes.md"], "metadata": metadata}), folder / "list.parquet")
    rows = list_inputs(FsspecInputFiles(), [], [str(folder / "list.parquet")])
    assert [row.metadata for row in rows if isinstance(row, SourceFile)] == [{"year": 2025}, {}]


def test_a_missing_manifest_is_one_problem_and_the_inputs_are_listed(folder: Path) -> None:
    rows = list(list_inputs(FsspecInputFiles(), [str(folder / "notes.md")], [str(folder / "missing.csv")]))
    assert [type(row) for row in rows] == [InputProblem, SourceFile]


def test_of_a_file_that_is_named_twice_the_first_row_counts(folder: Path) -> None:
    rows = [
        {"uri": "drafts/a.pdf", "acl": ["finance"]},
        {"uri": "drafts", "acl": ["staff"]},
        {"uri": "drafts/a.pdf", "acl": ["finance"]},
    ]
    path = folder / "list.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    listed = list(list_inputs(FsspecInputFiles(), [str(folder / "drafts")], [str(path)]))
    groups = {Path(row.uri).name: row.access.acl for row in listed if isinstance(row, SourceFile)}
    problems = [row for row in listed if isinstance(row, InputProblem)]
    assert groups == {"a.pdf": ("finance",), "c.pdf": ("staff",)}
    assert [(Path(problem.uri).name, problem.error_type) for problem in problems] == [("a.pdf", "skipped_named_before")]
    assert len(listed) == 3


def test_a_location_the_system_refuses_is_its_own_problem_and_not_its_manifests(folder: Path) -> None:
    class Refusing(FsspecInputFiles):
        def list(self, location: str) -> Iterator[SourceFile | InputProblem]:
            if location.endswith("stale"):
                raise OSError(116, "Stale file handle")
            return super().list(location)

    (folder / "list.csv").write_text("uri\nstale\na.pdf\n")
    problem, row = list_inputs(Refusing(), [], [str(folder / "list.csv")])
    assert isinstance(problem, InputProblem) and isinstance(row, SourceFile)
    assert (Path(problem.uri).name, problem.error_type) == ("stale", "unreadable")
