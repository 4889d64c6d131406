"""Uploads and documents over HTTP."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from rag_cluster.domain import keys
from rag_cluster.domain.access import LOCAL, AccessAttributes, Principal
from rag_cluster.domain.documents import PlannedFile, SourceKind
from rag_cluster.domain.ports import UploadRequest
from rag_cluster.errors import StoreUnavailableError
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.plan import PlanOptions, plan
from rag_cluster.wiring import Services

TEXT = b"The lighthouse of Wenling is 41 metres high. It was built in 1887 by Ada Brandt.\n"


async def test_an_upload_becomes_a_ready_document_that_answers(api: httpx.AsyncClient, upload: Any, work: Any) -> None:
    accepted = await upload("lighthouse.txt", TEXT)
    assert accepted.status_code == 202
    body = accepted.json()
    assert body["status"] == "PENDING" and body["deduplicated"] is False
    assert work() == 1
    job = (await api.get(f"/v1/jobs/{body['job_id']}")).json()
    assert (job["status"], job["percent"]) == ("SUCCEEDED", 100)
    document = (await api.get(f"/v1/documents/{body['document_id']}")).json()
    assert document["status"] == "READY" and document["published_version"] == 1
    found = await api.post("/v1/retrieve", json={"knowledge_base": "handbook", "query": "lighthouse Wenling metres"})
    assert [result["document_id"] for result in found.json()["results"]] == [body["document_id"]]


async def test_an_upload_whose_commit_got_no_answer_is_whole_when_it_is_sent_again(
    api: httpx.AsyncClient, upload: Any, work: Any, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = services.uploads.submit

    def submit_without_answer(request: UploadRequest) -> None:
        submit(request)
        raise StoreUnavailableError("PostgreSQL: the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(services.uploads, "submit", submit_without_answer)
        assert (await upload("lighthouse.txt", TEXT)).status_code >= 500
    body = (await upload("lighthouse.txt", TEXT)).json()
    assert body["deduplicated"] is True
    work()
    assert (await api.get(f"/v1/jobs/{body['job_id']}")).json()["status"] == "SUCCEEDED"


async def test_the_original_comes_back_byte_for_byte(api: httpx.AsyncClient, upload: Any, work: Any) -> None:
    body = (await upload("塔 高度.txt", TEXT)).json()
    work()
    content = await api.get(f"/v1/documents/{body['document_id']}/content")
    assert content.content == TEXT
    assert "filename*=UTF-8''" in content.headers["content-disposition"]


async def test_a_stored_original_or_image_that_is_damaged_is_an_error_and_never_given_for_what_was_stored(
    api: httpx.AsyncClient, services: Services, upload: Any, work: Any
) -> None:
    text = "# Lighthouse\n\nIt is 41 metres high.\n\n" + f"![the tower](data:image/png;base64,{picture()})\n"
    body = (await upload("lighthouse.md", text.encode())).json()
    work()
    found = await api.post("/v1/retrieve", json={"knowledge_base": "handbook", "query": "lighthouse tower"})
    (image,) = {asset["id"]: asset for result in found.json()["results"] for asset in result["assets"]}
    document = services.catalog.document(body["document_id"], LOCAL)
    places = {
        f"/v1/documents/{document.id}/content": keys.source_key(
            document.knowledge_base_id, document.id, 1, "lighthouse.md"
        ),
        f"/v1/assets/{image}": services.catalog.asset(image, LOCAL).object_key,
    }
    for address, key in places.items():
        assert (await api.get(address)).status_code == 200
        services.objects.put(key, services.objects.get(key)[:-1] + b"?")
        damaged = await api.get(address)
        assert (damaged.status_code, damaged.json()["error"]["type"]) == (502, "corrupt_object"), address


async def test_an_image_is_asked_for_again_each_time_so_that_a_revoked_right_is_gone_at_once(
    api: httpx.AsyncClient, base: dict[str, Any], services: Services, upload: Any, work: Any
) -> None:
    text = f"# Lighthouse\n\nIt is 41 metres high.\n\n![the tower](data:image/png;base64,{picture()})\n"
    body = (await upload("lighthouse.md", text.encode(), acl=json.dumps(["staff"]))).json()
    work()
    found = await api.post("/v1/retrieve", json={"knowledge_base": "handbook", "query": "lighthouse tower"})
    (image,) = {asset["id"] for result in found.json()["results"] for asset in result["assets"]}
    reader = Principal("reader", frozenset({base["id"]}), frozenset({"staff"}))
    headers = {"Authorization": f"Bearer {services.catalog.create_api_key('reader', reader)}"}
    first = await api.get(f"/v1/assets/{image}", headers=headers)
    assert "no-cache" in first.headers["cache-control"] and first.headers["vary"] == "Authorization"
    headers["If-None-Match"] = first.headers["etag"]
    again = await api.get(f"/v1/assets/{image}", headers=headers)
    assert (again.status_code, again.content) == (304, b"")
    services.catalog.update_document(body["document_id"], access=AccessAttributes(acl=("board",)))
    assert (await api.get(f"/v1/assets/{image}", headers=headers)).status_code == 404


def picture() -> str:
    """A PNG in base64."""
    buffer = io.BytesIO()
    Image.new("RGB", (80, 60), (9, 40, 90)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


async def test_an_original_that_was_referenced_comes_from_its_place_or_tells_what_became_of_it(
    api: httpx.AsyncClient, base: dict[str, Any], services: Services, tmp_path: Path
) -> None:
    path = tmp_path / "塔 高度.txt"
    path.write_bytes(TEXT)
    write_path = services.write_path()
    source = services.catalog.ensure_source(base["id"], SourceKind.BULK, "bulk")
    (item,) = plan(write_path, base["id"], [str(path)], PlanOptions(reference=True))
    assert isinstance(item, PlannedFile)
    work = steps.Work(base["id"], source.id, item.document_id, item.file, item.content_fingerprint)
    parts = steps.prepare(write_path, work, owner="run")
    assert isinstance(parts, list)
    steps.index(write_path, steps.open_index(write_path), parts)
    address = f"/v1/documents/{item.document_id}/content"
    assert (await api.get(address)).content == TEXT
    path.write_bytes(TEXT + b"!")
    changed = await api.get(address)
    assert (changed.status_code, changed.json()["error"]["type"]) == (409, "original_changed")
    path.unlink()
    gone = await api.get(address)
    assert (gone.status_code, gone.json()["error"]["type"]) == (410, "original_gone")
    missing = await api.get(address, params={"version": 9})
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found")


async def test_the_same_bytes_with_the_same_attributes_are_the_same_document(upload: Any, work: Any) -> None:
    first = (await upload("a.txt", TEXT)).json()
    work()
    second = (await upload("b.txt", TEXT)).json()
    assert second["deduplicated"] is True and second["document_id"] == first["document_id"]
    other = (await upload("c.txt", TEXT, acl=json.dumps(["staff"]))).json()
    assert other["deduplicated"] is False


async def test_an_idempotency_key_repeated_gives_the_same_job_and_another_body_conflicts(upload: Any) -> None:
    key = {"Idempotency-Key": "import-7"}
    first = await upload("a.txt", TEXT, headers=key)
    again = await upload("a.txt", TEXT, headers=key)
    assert again.json()["job_id"] == first.json()["job_id"]
    conflict = await upload("a.txt", TEXT + b"more", headers=key)
    assert conflict.status_code == 409 and conflict.json()["error"]["type"] == "idempotency_conflict"


async def test_an_upload_repeated_after_its_document_was_deleted_is_stored_again_although_the_purge_is_owed(
    api: httpx.AsyncClient, upload: Any, work: Any, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = {"Idempotency-Key": "import-7"}
    first = (await upload("a.txt", TEXT, headers=key)).json()
    work()

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError("Milvus does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(services.index, "delete", away)
        assert (await api.delete(f"/v1/documents/{first['document_id']}")).json()["pending"] is True
        second = (await upload("a.txt", TEXT, headers=key)).json()
    assert second["document_id"] != first["document_id"] and second["deduplicated"] is False
    work()
    assert (await api.get(f"/v1/jobs/{second['job_id']}")).json()["status"] == "SUCCEEDED"
    assert (await api.get(f"/v1/documents/{second['document_id']}/content")).content == TEXT


@pytest.mark.parametrize(
    ("name", "content", "status", "kind"),
    [
        ("empty.txt", b"", 400, "empty_document"),
        ("report.pdf", b"plain text, no PDF at all", 415, "unsupported_document_type"),
        ("setup.pdf", b"MZ\x90\x00" + b"\x00" * 200, 415, "unsupported_document_type"),
        ("tool.exe", b"MZ\x90\x00", 415, "unsupported_document_type"),
        ("../../etc/passwd.txt", TEXT, 400, "invalid_request"),
        ("..\\secret.txt", TEXT, 400, "invalid_request"),
        ("large.txt", b"x" * 2_500_000, 413, "document_too_large"),
        ("noextension", TEXT, 415, "unsupported_document_type"),
        ("x" * 300 + ".txt", TEXT, 400, "invalid_request"),
    ],
)
async def test_bad_uploads_are_refused_clearly_and_nothing_is_stored(
    api: httpx.AsyncClient, upload: Any, services: Services, name: str, content: bytes, status: int, kind: str
) -> None:
    response = await upload(name, content)
    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
    assert "Traceback" not in response.text
    assert (await api.get("/v1/knowledge-bases/handbook/documents")).json()["items"] == []
    assert list(services.objects.list("")) == []
    assert services.uploads.backlog() == 0


@pytest.mark.parametrize("fields", [{"acl": "staff"}, {"acl": "{}"}, {"metadata": "[1]"}, {"security_level": "12"}])
async def test_malformed_fields_are_named(upload: Any, fields: dict[str, str]) -> None:
    response = await upload("a.txt", TEXT, **fields)
    assert response.status_code == 400
    assert next(iter(fields)) in response.json()["error"]["message"]


async def test_a_broken_document_fails_its_job_with_a_stable_type(
    api: httpx.AsyncClient, upload: Any, work: Any
) -> None:
    body = (await upload("broken.pdf", b"%PDF-1.7\n" + b"garbage " * 50)).json()
    work()
    job = (await api.get(f"/v1/jobs/{body['job_id']}")).json()
    assert (job["status"], job["error_type"]) == ("FAILED", "corrupt_document")
    document = (await api.get(f"/v1/documents/{body['document_id']}")).json()
    assert document["status"] == "FAILED" and document["published_version"] is None


async def test_a_change_of_access_is_in_force_for_the_next_query(
    api: httpx.AsyncClient, upload: Any, work: Any
) -> None:
    body = (await upload("lighthouse.txt", TEXT)).json()
    work()
    response = await api.patch(
        f"/v1/documents/{body['document_id']}",
        json={"access": {"acl": ["keepers"], "security_level": 3}, "metadata": {"year": 1887}},
    )
    assert response.json()["access"] == {"acl": ["keepers"], "department": None, "security_level": 3}
    query = {"knowledge_base": "handbook", "query": "lighthouse", "options": {"filters": {"year": 1887}}}
    assert len((await api.post("/v1/retrieve", json=query)).json()["results"]) == 1
    query["options"] = {"filters": {"year": 1999}}
    assert (await api.post("/v1/retrieve", json=query)).json()["results"] == []


async def test_a_deleted_document_is_gone_everywhere(
    api: httpx.AsyncClient, upload: Any, work: Any, services: Services
) -> None:
    body = (await upload("lighthouse.txt", TEXT)).json()
    work()
    receipt = await api.delete(f"/v1/documents/{body['document_id']}")
    assert receipt.status_code == 200 and receipt.json()["pending"] is False
    assert set(receipt.json()["stores"].values()) == {"gone"}
    assert (await api.get(f"/v1/documents/{body['document_id']}")).status_code == 404
    assert list(services.objects.list("")) == []
    found = await api.post("/v1/retrieve", json={"knowledge_base": "handbook", "query": "lighthouse"})
    assert found.json()["results"] == []


async def test_documents_are_paged_by_cursor(api: httpx.AsyncClient, upload: Any) -> None:
    for number in range(5):
        await upload(f"{number}.txt", TEXT + str(number).encode())
    seen: list[str] = []
    url = "/v1/knowledge-bases/handbook/documents?limit=2"
    page = (await api.get(url)).json()
    while True:
        seen += [item["filename"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        page = (await api.get(f"{url}&cursor={page['next_cursor']}")).json()
    assert sorted(seen) == [f"{number}.txt" for number in range(5)]


async def test_a_failed_document_is_queued_again_and_a_ready_one_conflicts(
    api: httpx.AsyncClient, upload: Any, work: Any
) -> None:
    failed = (await upload("blank.txt", b" \n ")).json()
    ready = (await upload("lighthouse.txt", TEXT)).json()
    work()
    conflict = await api.post(f"/v1/documents/{ready['document_id']}/retry")
    assert conflict.status_code == 409
    assert (await api.get(f"/v1/documents/{failed['document_id']}")).json()["status"] == "FAILED"
    again = await api.post(f"/v1/documents/{failed['document_id']}/retry")
    assert again.status_code == 202 and again.json()["status"] == "PENDING"


async def test_an_upload_may_choose_its_chunking_and_an_unknown_one_is_refused(upload: Any, work: Any) -> None:
    accepted = await upload("lighthouse.txt", TEXT, chunking="sentence")
    assert accepted.status_code == 202
    refused = await upload("lighthouse.txt", TEXT, chunking="nonsense")
    assert refused.status_code == 400, refused.text
