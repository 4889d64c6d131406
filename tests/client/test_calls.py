"""`RagCluster`'s calls: the same in this process and over HTTP."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rag_cluster.client import RagCluster
from rag_cluster.domain.access import Principal
from rag_cluster.errors import InvalidRequestError, NotFoundError, SourceUnavailableError
from tests.client.conftest import TEXTS


@pytest.fixture(params=["in this process", "over HTTP"])
def client(request: pytest.FixtureRequest) -> RagCluster:
    found: RagCluster = request.getfixturevalue("rag" if request.param == "in this process" else "remote")
    return found


def test_texts_are_added_found_answered_explained_and_deleted(client: RagCluster) -> None:
    added = client.add_texts(TEXTS)
    assert added.ok, added
    assert added.to_pandas()["filename"].tolist() == ["crane.txt", "岸桥.md"]

    found = client.search("crane wind limit", top_k=1)
    frame = found.to_pandas()
    assert frame.loc[0, "filename"] == "crane.txt" and "20 m/s" in frame.loc[0, "text"]
    assert found[0].metadata["uri"] == "https://example.com/crane.txt"

    text = client.retrieve_and_format("crane wind limit", top_k=1)
    assert text.startswith("[来源 1]\n文档：crane.txt") and "20 m/s" in text
    bare = client.retrieve_and_format("crane wind limit", max_context_length=30, include_metadata=False)
    assert 0 < len(bare) <= 30 and "来源" not in bare

    answer = client.ask("岸桥制动器间隙的标准值是多少？")
    assert "1.2" in answer.text and answer.to_pandas().loc[0, "filename"] == "岸桥.md"
    assert len(client.ask_all(["What is the crane wind limit?", "岸桥制动器间隙？"]).to_pandas()) == 2

    explained = client.explain("crane wind limit", added.document_ids[0])
    assert explained.lost_at == "" and "crane.txt" in str(explained)
    assert explained.to_pandas().set_index("stage").loc["sparse", "rank"] == 1

    assert client.documents(status="READY").to_pandas()["status"].tolist() == ["READY"] * 2
    assert not client.delete(client.documents()).pending
    assert client.documents().to_pandas().empty
    assert client.knowledge_bases().to_pandas()["name"].tolist() == ["handbook"]
    assert len(client.delete_knowledge_base("handbook").receipts) == 0


def test_a_dataframe_of_texts_comes_in_with_its_missing_cells(rag: RagCluster) -> None:
    frame = pd.DataFrame({"text": ["One.", "Two."], "security_level": [None, 2], "uri": ["a/one.txt", None]})
    added = rag.add_texts(frame, acl=["staff"])
    assert added.ok, added
    documents = {item.filename: item.access for item in rag.documents().items}
    assert documents["one.txt"].acl == ["staff"] and documents["one.txt"].security_level == 0
    assert sorted(access.security_level for access in documents.values()) == [0, 2]


def test_the_same_text_is_added_once_and_a_refused_file_is_a_row(rag: RagCluster, tmp_path: Path) -> None:
    first = rag.add_texts("The gate opens at six.")
    again = rag.add_texts("The gate opens at six.")
    assert again.document_ids == first.document_ids and again.items[0]["deduplicated"]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "program.exe").write_bytes(b"MZ\x90\x00")
    (tmp_path / "in" / "note.txt").write_text("The harbour master is on duty.")
    sent = rag.upload(tmp_path / "in")
    assert [row["status"] for row in sent.items] == ["SUCCEEDED", "REFUSED"]
    assert sent.items[1]["error_type"] == "unsupported_document_type" and not sent.ok


async def test_calls_work_while_an_event_loop_runs_in_the_same_thread(rag: RagCluster) -> None:
    rag.add_texts(TEXTS)
    assert rag.ask("What is the crane wind limit?").citations


def test_lists_longer_than_a_page_come_whole_or_to_the_limit(rag: RagCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_cluster.client.http.PAGE", 2)
    for number in range(5):
        rag.create_knowledge_base(f"base {number}")
    whole, part = rag.knowledge_bases(), rag.knowledge_bases(limit=3)
    assert (len(whole.items), whole.next_cursor) == (5, None)
    assert len(part.items) == 3 and part.next_cursor


def test_parse_shows_blocks_without_any_store(rag: RagCluster, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Title\n\nWords.\n")
    parsed = rag.parse(tmp_path / "a.md")
    assert parsed.to_pandas()["type"].tolist() == ["heading", "text"]
    assert parsed.to_markdown() == "# Title\n\nWords.\n" and "<th" in parsed._repr_html_()
    with pytest.raises(NotFoundError):
        rag.parse(tmp_path / "missing.md")


def test_the_servers_error_is_raised_as_its_class(client: RagCluster) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        client.search("anything", knowledge_base="nowhere")
    with pytest.raises(InvalidRequestError, match="top_k"):
        client.search("anything", top_k=0)
    with pytest.raises(InvalidRequestError, match="text"):
        client.add_texts([{"body": "x"}])


def test_mistakes_are_told_before_anything_is_sent(remote: RagCluster) -> None:
    with pytest.raises(InvalidRequestError, match="ray_address"):
        remote.ingest("anywhere")
    with pytest.raises(InvalidRequestError, match="ray_address"):
        remote.submit("fsck")
    for wrong in ("localhost:8000", "", "ftp://host"):
        with pytest.raises(InvalidRequestError, match="http://HOST:PORT"):
            RagCluster(wrong)
    with RagCluster("http://127.0.0.1:1") as nobody, pytest.raises(SourceUnavailableError, match="running"):
        nobody.runs()


def test_a_closed_client_says_so_and_shows_no_key(remote: RagCluster) -> None:
    client = RagCluster(remote._api.name, api_key="rag_secret_key")
    assert "rag_secret_key" not in repr(client)
    client.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        client.runs()


def test_api_keys_for_the_server_do_not_lock_the_owner_out(rag: RagCluster) -> None:
    assert rag._embedded is not None
    rag._embedded.services.catalog.create_api_key("reader", Principal("reader"))
    assert rag.runs().items == []
