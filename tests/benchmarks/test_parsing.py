from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from rag_cluster.benchmarks import documents
from rag_cluster.benchmarks.parsing import linearity, run


def test_the_parsing_benchmark_compares_each_format_with_the_bare_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents.text_pdf(tmp_path / "a.pdf", 2)
    documents.workbook(tmp_path / "a.xlsx", 20)
    documents.word_document(tmp_path / "a.docx", 5)
    documents.presentation(tmp_path / "a.pptx", 5)
    (tmp_path / "broken.pdf").write_bytes(b"no pdf")
    run(tmp_path, rounds=1, as_json=True)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [speed["format"] for speed in result["formats"]] == ["pdf", "xlsx", "docx", "pptx"]
    for speed in result["formats"]:
        assert speed["ratio"] == pytest.approx(speed["ours"] / speed["bare"])
        assert speed["units"] > 0 and speed["peak_mib"] > 10 and speed["bare_peak_mib"] > 10
    assert result["left_out"] == ["broken.pdf: unsupported_document_type"]


def test_time_per_page_does_not_grow_with_the_document(tmp_path: Path) -> None:
    documents.text_pdf(tmp_path / "short.pdf", 10)
    documents.text_pdf(tmp_path / "long.pdf", 100)
    assert linearity(tmp_path / "short.pdf", tmp_path / "long.pdf", 2)["ratio"] < 1.8


def test_without_the_test_extra_the_benchmark_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "reportlab.pdfgen.canvas", None)
    with pytest.raises(typer.Exit):
        run()
    assert "rag-cluster[test]" in capsys.readouterr().err
