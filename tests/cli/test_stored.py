"""kb, docs, runs, keys, search, ask and serve on real stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_cluster.domain import ids
from rag_cluster.domain.documents import Receipt, RunStatus
from rag_cluster.ingestion.report import Tally
from rag_cluster.ingestion.stage_times import StageSpan
from rag_cluster.settings import get_settings
from rag_cluster.wiring import ServiceFactory
from tests.cli.conftest import CommandLine, ingest


@pytest.fixture
def harbour(cli: CommandLine) -> CommandLine:
    """With an open knowledge base of that name."""
    assert cli("kb", "create", "harbour", "--open").code == 0
    return cli


@pytest.fixture
def manual(harbour: CommandLine, tmp_path: Path) -> str:
    """The id of a document whose file name has Chinese, a space and rich's markup."""
    file = tmp_path / "岸桥 [red]说明[b].md"
    file.write_text("# 岸桥\n\n制动器间隙的标准值是 1.2 毫米。\n", encoding="utf-8")
    (document,) = ingest("harbour", file)
    return document


def test_a_knowledge_base_is_created_listed_shown_changed_and_deleted(cli: CommandLine) -> None:
    created = cli("kb", "create", "港口 [/b]", "--description", "a  b", "--json").json
    assert created["default_acl"] is None
    assert cli("kb", "list").rows == [["港口 [/b]", "closed", "a b", created["id"]]]
    assert cli("kb", "show", created["id"], "--json").json == created
    changed = cli("kb", "update", "港口 [/b]", "--name", "harbour", "--default-acl", "staff", "--json").json
    assert (changed["name"], changed["default_acl"]) == ("harbour", ["staff"])
    assert cli("kb", "delete", "harbour", "--yes", "--json").json["documents"] == 0
    assert cli("kb", "show", "harbour").code == 1


def test_a_name_that_is_taken_is_a_conflict(harbour: CommandLine) -> None:
    result = harbour("kb", "create", "harbour", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "conflict")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201])
def test_a_knowledge_base_needs_a_name_that_can_be_typed_again(cli: CommandLine, name: str) -> None:
    assert cli("kb", "create", name).code == 2
    assert cli("kb", "list").rows == []


def test_contradicting_defaults_are_refused(harbour: CommandLine) -> None:
    result = harbour("kb", "update", "harbour", "--open", "--close")
    assert result.code == 2
    assert "--close" in result.stderr


def test_deleting_asks_first_and_nobody_there_means_no(harbour: CommandLine) -> None:
    refused = harbour("kb", "delete", "harbour")
    assert refused.code == 1
    assert "--yes" in refused.stderr
    assert harbour("kb", "delete", "harbour", stdin="y\n").code == 0


@pytest.mark.parametrize("kind", ["docs", "runs", "kb"])
def test_what_does_not_exist_is_not_found(cli: CommandLine, kind: str) -> None:
    result = cli(kind, "show", "nothing", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "not_found")


def test_a_long_list_says_where_the_next_page_begins(cli: CommandLine) -> None:
    for number in range(3):
        cli("kb", "create", f"base {number}")
    first = cli("kb", "list", "--limit", "2", "--json").json
    assert [base["name"] for base in first["items"]] == ["base 0", "base 1"]
    rest = cli("kb", "list", "--limit", "2", "--cursor", first["next_cursor"])
    assert [row[0] for row in rest.rows] == ["base 2"]
    assert f"--cursor {first['next_cursor']}" in cli("kb", "list", "--limit", "2").stderr
    assert cli("kb", "list", "--cursor", "nonsense", "--json").json["error"]["type"] == "invalid_request"


def test_documents_are_listed_by_status_and_shown_under_their_real_name(harbour: CommandLine, manual: str) -> None:
    assert harbour("docs", "list", "-k", "harbour", "--status", "ready").rows == [
        ["岸桥 [red]说明[b].md", "READY", "1", "1", "", manual]
    ]
    assert harbour("docs", "list", "-k", "harbour", "--status", "FAILED").rows == []
    shown = harbour("docs", "show", manual)
    assert "岸桥 [red]说明[b].md" in shown.stdout
    assert harbour("docs", "show", manual, "--json").json["access"]["acl"] == []


def test_an_answer_is_printed_with_its_places_and_a_refusal_is_a_success(harbour: CommandLine, manual: str) -> None:
    answer = harbour("ask", "制动器间隙的标准值是多少？", "-k", "harbour", "--trace")
    assert answer.code == 0
    assert "1.2 毫米。[1]" in answer.stdout
    assert "[1] 岸桥 [red]说明[b].md  line 3" in answer.stdout
    assert "recall" in answer.stdout
    refused = harbour("ask", "Who won the football world championship in 1998?", "-k", "harbour", "--json")
    assert (refused.code, refused.json["refused"]) == (0, True)


def test_a_search_shows_scores_places_and_texts_as_they_are(harbour: CommandLine, manual: str) -> None:
    (row,) = harbour("search", "[red]制动器[/b]", "-k", "harbour").rows
    assert row[2:4] == ["岸桥 [red]说明[b].md", "line 3 · 岸桥"]
    assert harbour("search", "x", "-k", "nothing", "--json").json["error"]["type"] == "not_found"
    assert harbour("ask", " ", "-k", "harbour", "--json").json["error"]["type"] == "invalid_request"


def test_a_changed_acl_is_in_force_for_the_next_request(harbour: CommandLine, manual: str) -> None:
    changed = harbour("docs", "access", manual, "--acl", "finance", "--security-level", "2", "--json").json
    assert changed["access"] == {"acl": ["finance"], "department": None, "security_level": 2}
    inherited = harbour("docs", "access", manual, "--inherit")
    assert "the knowledge base's default" in inherited.stdout
    assert harbour("docs", "access", manual, "--inherit", "--open", "--json").code == 2


def test_deleting_a_document_prints_what_was_verified_gone(harbour: CommandLine, manual: str) -> None:
    receipt = harbour("docs", "delete", manual, "--yes", "--json").json
    assert receipt["document_id"] == manual
    assert receipt["pending"] is False
    assert {"postgres", "milvus"} <= {store.split("_")[0] for store in receipt["stores"]}
    assert harbour("docs", "show", manual).code == 1


def test_an_ingest_names_each_file_that_failed_or_was_skipped_and_runs_show_tells_it_later(
    cli: CommandLine, tmp_path: Path
) -> None:
    odd = tmp_path / "岸桥 [red].xyz"
    odd.write_text("x")
    report = tmp_path / "run.json"
    result = cli("ingest", str(odd), str(tmp_path / "missing.pdf"), "-k", "harbour", "--report", str(report))
    written = json.loads(report.read_text(encoding="utf-8"))
    assert [problem["outcome"] for problem in written["problems"]] == ["skipped", "failed"]
    assert result.code == 1
    assert f"skipped {odd}: unsupported_document_type: There is no parser" in result.stdout
    assert f"failed {tmp_path / 'missing.pdf'}: " in result.stdout
    run = cli("runs", "list", "--json").json["items"][0]
    assert "1 skipped, 1 failed" in cli("runs", "list").rows[0][3]
    shown = cli("runs", "show", run["id"], "--json").json
    assert {receipt["outcome"] for receipt in shown["receipts"]} == {"skipped", "failed"}
    assert f"skipped\t{odd}\tplan\tunsupported_document_type" in cli("runs", "show", run["id"]).stdout


def test_an_ingest_of_an_empty_folder_is_no_success(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = cli("ingest", str(tmp_path / "empty"), "-k", "harbour", "--json")
    assert (result.code, result.json["ok"], result.json["listed"]) == (1, False, 0)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["nowhere"], "not_found"),
        (["."], "invalid_setting"),
        ([".", "--open", "--acl", "staff"], "invalid_request"),
    ],
)
def test_a_mistaken_ingest_says_what_is_wrong(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: list[str], kind: str
) -> None:
    monkeypatch.setenv("RAG_CHUNKING_STRATEGY", "nonsense")
    result = cli("ingest", *arguments, "-k", "harbour", "--json")
    assert result.code != 0
    assert result.json["error"]["type"] == kind


@pytest.mark.parametrize(
    "mistyped", [["nowhere"], ["nowhere/*.pdf"], ["--manifest", "nowhere.csv"], ["--manifest", "."]]
)
def test_a_mistyped_path_leaves_no_knowledge_base_behind(cli: CommandLine, mistyped: list[str]) -> None:
    result = cli("ingest", *mistyped, "-k", "harbour", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "not_found")
    assert cli("kb", "list").rows == []


def test_serving_beyond_this_machine_needs_a_key(cli: CommandLine) -> None:
    result = cli("serve", "--host", "0.0.0.0", "--port", "0", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "invalid_setting")
    assert "rag-cluster keys create" in result.json["error"]["message"]


def test_a_key_is_shown_once_and_its_name_is_unique(harbour: CommandLine) -> None:
    key = harbour("keys", "create", "website", "-k", "harbour", "--group", "public", "--json").json
    assert key["name"] == "website"
    assert key["secret"]
    assert harbour("keys", "create", "website", "--json").json["error"]["type"] == "conflict"
    assert harbour("keys", "create", "empty", "--group", "", "--json").json["error"]["type"] == "invalid_request"
    assert harbour("keys", "create", "other", "-k", "nothing", "--json").json["error"]["type"] == "not_found"


def test_milvus_out_of_reach_is_told_and_what_needs_only_postgres_goes_on(
    harbour: CommandLine, manual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rag_cluster.settings import get_settings

    monkeypatch.setenv("RAG_MILVUS_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("RAG_MILVUS_TIMEOUT", "1")
    get_settings.cache_clear()
    result = harbour("search", "制动器", "-k", "harbour", "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "store_unavailable")
    assert harbour("docs", "list", "-k", "harbour").code == 0


def test_stores_that_the_settings_name_are_not_started_a_second_time(cli: CommandLine, tmp_path: Path) -> None:
    assert cli("up", "--json").json["servers"] == []
    assert cli("status").code == 0
    assert not (tmp_path / "data").exists()


def test_a_failed_document_is_retried_on_the_spot(harbour: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "torn.docx"
    file.write_text("no archive")
    (document,) = ingest("harbour", file)
    again = harbour("docs", "retry", document, "--json")
    assert (again.code, again.json["status"], again.json["error_type"]) == (1, "FAILED", "unsupported_document_type")


@pytest.mark.usefixtures("manual")
def test_a_retry_with_another_embedder_than_the_indexs_says_so_and_queues_nothing(
    harbour: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "torn.docx"
    file.write_text("no archive")
    (document,) = ingest("harbour", file)
    monkeypatch.setenv("RAG_EMBEDDER", "hash:32")
    get_settings.cache_clear()
    result = harbour("docs", "retry", document, "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "index_mismatch")
    assert ServiceFactory(get_settings())().uploads.backlog() == 0


def test_a_ready_document_has_nothing_to_retry(harbour: CommandLine, manual: str) -> None:
    result = harbour("docs", "retry", manual, "--json")
    assert (result.code, result.json["error"]["type"]) == (1, "conflict")


def test_a_run_is_watched_to_its_end_asked_to_end_and_its_errors_are_listed(harbour: CommandLine) -> None:
    ledger = ServiceFactory(get_settings())().ledger
    base = harbour("kb", "show", "harbour", "--json").json["id"]
    run_id = ids.upload_document_id()
    ledger.start_run(base, ["x"], {}, run_id)
    assert harbour("runs", "cancel", run_id, "--json").json["status"] == "RUNNING"
    assert ledger.cancel_requested(run_id)
    ledger.record_receipts(run_id, [Receipt("file:///torn.pdf", "", "failed", error_type="corrupt_document")])
    ledger.finish_run(run_id, RunStatus.CANCELLED, {"listed": 1, "failed": 1})
    watched = harbour("runs", "watch", "--json")
    assert (watched.code, watched.json["status"]) == (1, "CANCELLED")
    (error,) = harbour("runs", "errors", run_id, "--json").json["items"]
    assert error["error_type"] == "corrupt_document"


def test_the_report_of_a_run_is_written_from_what_was_kept_with_it(harbour: CommandLine, tmp_path: Path) -> None:
    ledger = ServiceFactory(get_settings())().ledger
    base = harbour("kb", "show", "harbour", "--json").json["id"]
    run_id, tally = ids.upload_document_id(), Tally()
    torn = Receipt("file:///%E7%A0%81%E5%A4%B4.pdf", "", "failed", error_type="corrupt_document")
    tally.add(torn)
    tally.timeline.add([StageSpan("parse", 0.0, 1.0, 1.0, 1)])
    ledger.start_run(base, ["x"], {}, run_id)
    ledger.record_receipts(run_id, [torn])
    page = tmp_path / "run.html"
    assert harbour("runs", "show", run_id, "--report", str(page)).code == 0
    assert "RUNNING" in page.read_text() and "码头.pdf" in page.read_text() and "<svg" not in page.read_text()
    report = tally.report(run_id, "harbour", RunStatus.SUCCEEDED)
    ledger.finish_run(run_id, RunStatus.SUCCEEDED, tally.counts(), None, report.to_dict())
    assert harbour("runs", "show", run_id, "--report", str(page)).code == 0
    assert "<svg" in page.read_text() and "corrupt_document" in page.read_text()
    missing = harbour("runs", "show", ids.upload_document_id(), "--report", str(page), "--json")
    assert (missing.code, missing.json["error"]["type"]) == (1, "not_found")


def test_keys_are_listed_and_revoked(harbour: CommandLine) -> None:
    secret = harbour(
        "keys", "create", "网站", "-k", "harbour", "--group", "public", "--security-level", "2"
    ).stdout.strip()
    listed = harbour("keys", "list")
    assert listed.rows[0][0] == "网站" and listed.rows[0][2] == "public" and secret not in listed.stdout
    assert harbour("keys", "revoke", "网站").code == 0
    (key,) = harbour("keys", "list", "--json").json["items"]
    assert key["revoked_at"] is not None and key["security_level"] == 2 and secret not in str(key)
    assert harbour("keys", "revoke", "nobody").code == 1


@pytest.mark.parametrize("text", ["{nope", "[1]", '{"and": []}'])
def test_a_filter_that_means_nothing_is_refused(harbour: CommandLine, text: str) -> None:
    outcome = harbour("search", "q", "-k", "harbour", "--filter", text, "--json")
    assert (outcome.code, outcome.json["error"]["type"]) == (1, "invalid_filter")
