"""`rag-cluster eval` without ingestion, and against a knowledge base that is there."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import CommandLine, ingest

TEXTS = {
    "storage.md": "# Tariff\n\nStorage costs 60 yuan a day.",
    "pilot.md": "# 引航\n\n引航员应至少提前四小时预约。",
    "crane.md": "# Cranes\n\nThe boom is raised in high wind.",
}


def questions(folder: Path) -> str:
    corpus = folder / "corpus"
    corpus.mkdir()
    for name, text in TEXTS.items():
        (corpus / name).write_text(text, encoding="utf-8")
    lines = [
        {"question": "What does storage cost a day?", "document": "storage.md", "answers": ["60 yuan"]},
        {"question": "引航员提前多久预约？", "document": "pilot.md", "locator": {"heading": "引航"}},
    ]
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return f"jsonl:{path}+{corpus}"


def test_two_runs_in_this_process_are_gated_written_and_compared(cli: CommandLine, tmp_path: Path) -> None:
    spec = questions(tmp_path)
    reports = [tmp_path / "a.json", tmp_path / "b.json"]
    for report, chunking in zip(reports, ("structured:40/80", "fixed_size:100/0"), strict=True):
        options = ("--ablation", "sparse", "--chunking", chunking, "--latency", "1", "--report", str(report))
        found = cli("eval", "--dataset", spec, *options, "--gate", "recall@1>=1", "--json")
        assert found.code == 0, found.stderr
        arm = found.json["arms"][f"{chunking} sparse"]
        assert arm["measures"]["recall@1"] == 1.0 and arm["cost"]["chunks"] == 3
        assert found.json["gates"] == [{"gate": "recall@1>=1", "found": 1.0, "passed": True}]
    compared = cli("eval", "compare", *map(str, reports))
    name = "structured:40/80 sparse -> fixed_size:100/0 sparse"
    assert compared.rows[0][:6] == [name, "recall@1", "2", "1.0000", "1.0000", "+0.0000"]


def test_a_gate_that_is_missed_is_named_and_ends_with_1(cli: CommandLine, tmp_path: Path) -> None:
    page, negatives = tmp_path / "run.html", tmp_path / "negatives.jsonl"
    found = cli(
        *("eval", "--dataset", questions(tmp_path), "--in-process", "--ablation", "sparse,hybrid", "--latency", "0"),
        *("--gate", "sparse recall@5>=0.9", "--gate", "mrr@10>1", "--html", str(page)),
        *("--mine-hard-negatives", str(negatives)),
    )
    assert found.code == 1
    assert found.rows[-2][-1] == "passed" and found.rows[-1][0] == "mrr@10>1" and found.rows[-1][-1] == "FAILED"
    assert "<svg" in page.read_text(encoding="utf-8")
    mined = [json.loads(line) for line in negatives.read_text(encoding="utf-8").splitlines()]
    assert {line["question"] for line in mined} == {"What does storage cost a day?", "引航员提前多久预约？"}


def test_a_knowledge_base_that_is_there_is_asked(cli: CommandLine, tmp_path: Path) -> None:
    spec = questions(tmp_path)
    cli("kb", "create", "harbour")
    ingest("harbour", *(tmp_path / "corpus" / name for name in TEXTS))
    options = ("-k", "harbour", "--no-answers", "--ablation", "sparse", "--latency", "1", "--json")
    found = cli("eval", "--dataset", spec, *options)
    assert found.json["arms"]["sparse"]["measures"] == {
        **dict.fromkeys(("recall@1", "recall@5", "recall@10", "mrr@10", "ndcg@10", "answer@5", "place@5"), 1.0)
    }
    assert found.json["system"]["facts"] == "PostgreSQL"
    (tmp_path / "other.jsonl").write_text('{"question": "?", "document": "elsewhere.md"}\n')
    missing = cli("eval", "--dataset", f"jsonl:{tmp_path / 'other.jsonl'}", *options)
    assert missing.code == 1 and "elsewhere.md" in missing.json["error"]["message"]


def test_a_data_set_must_be_named(offline: CommandLine) -> None:
    assert offline("eval").code == 2
    assert offline("eval", "--dataset", "nonsense:x", "--json").json["error"]["type"] == "invalid_request"
