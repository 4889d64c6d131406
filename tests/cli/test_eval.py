"""`rag-cluster eval` without ingestion, and against a knowledge base that is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine, ingest
from tests.fixtures.in_process import in_process

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
    reports = [tmp_path / "new" / "a.json", tmp_path / "b.json"]
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


def test_the_whole_system_is_filled_asked_and_answers_are_measured(cli: CommandLine, tmp_path: Path) -> None:
    spec = questions(tmp_path)
    off_topic = tmp_path / "off.jsonl"
    off_topic.write_text('{"question": "Who composed the opera?", "document": "opera.md"}\n')
    options = ("--ablation", "hybrid", "--latency", "1", "--off-topic", f"jsonl:{off_topic}")
    runs = []
    for form in (("--json",), ()):
        with in_process():
            runs.append(cli("eval", "--dataset", spec, *options, *form))
    assert [run.code for run in runs] == [0, 0], runs
    found = runs[0].json
    measured = found["arms"]["hybrid"]
    assert measured["measures"]["recall@5"] == 1.0 and found["system"]["facts"] == "PostgreSQL"
    cost = measured["cost"]
    assert cost["chunks"] == 3 and cost["tokens"] == cost["embedded_tokens"] > 0
    answers = found["answers"]
    assert {name: answers[name] for name in ("questions", "gold_in_quote", "false_refusals")} == {
        "questions": 1,
        "gold_in_quote": 0.0,
        "false_refusals": 0.0,
    }
    assert (answers["off_topic_refusals"], answers["gold_removed_refusals"]) == (1.0, 1.0)
    shifts = {point["shift"]: point for point in answers["refusal_curve"]}
    assert shifts[0.0] == {"shift": 0.0, "answerable": 0.0, "gold_removed": 1.0, "off_topic": 1.0}
    assert "off-topic refused" in runs[1].stdout and "gold_in_quote\t0.0" in runs[1].stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gate", "recal@5>=0.9"), "measured were recall@1"),
        (("--gate", "token_recall@250>=0.9"), "measured were recall@1"),
        (("--gate", "recall@5/en>=0.9"), "no such questions"),
        (("--gate", "p99_ms<=50", "--latency", "0"), "measured were recall@1"),
        (("--gate", "recall@5>=0.9", "--ablation", "dense,sparse"), "which arm is meant? There are dense, sparse."),
        (("--gate", "rerank recall@5>=0.9", "--ablation", "hybrid,rerank"), "There are hybrid."),
        (("--ablation", "rerank"), "rerank: no reranker is configured"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_is_asked(
    offline: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("RAG_EMBEDDER", "hash:64")
    found = offline("eval", "--dataset", questions(tmp_path), "--in-process", *options, "--json")
    assert found.code == 1 and said in found.json["error"]["message"]


@pytest.mark.parametrize("option", ["--report", "--html", "--mine-hard-negatives"])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_asked(
    offline: CommandLine, tmp_path: Path, option: str
) -> None:
    spec = questions(tmp_path)
    (tmp_path / "file").write_text("")
    found = offline("eval", "--dataset", spec, option, str(tmp_path / "file" / "out"))
    assert found.code == 2 and "Invalid value" in found.stderr and option in found.stderr


def test_a_data_set_must_be_named(offline: CommandLine) -> None:
    assert offline("eval").code == 2
    assert offline("eval", "--dataset", "nonsense:x", "--json").json["error"]["type"] == "invalid_request"
