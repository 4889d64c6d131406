"""No request shows anything of what its caller may not read: random principals, access rules and endpoints.

Every document and knowledge base carries marks that stand nowhere else: its ids, a word in its text, name, metadata and
caption, its jobs and pictures, its runs. A response holds a mark only if the caller may read its owner, or sent it.
"""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from PIL import Image

from rag_cluster.domain.access import LOCAL, AccessAttributes, Principal
from rag_cluster.domain.documents import Receipt, RunStatus
from rag_cluster.domain.retrieval import EvidenceRow
from rag_cluster.stores.postgres import evidence
from rag_cluster.stores.postgres.evidence import PostgresEvidence
from rag_cluster.wiring import Services

FULL = os.environ.get("RAG_FULL_COUNTS") == "1"
CASES = 5_000 if FULL else 250
BASES, DOCUMENTS = 3, 6
GROUPS = ["engineers", "finance", "人事"]
DEPARTMENTS = ["harbour", "legal"]
DEFAULTS: list[list[str] | None] = [None, [], ["engineers"]]
SECRET = "confidential"
"""A word of every document, in the beginning of each mark."""


@dataclass
class Base:
    id: str
    name: str
    default_acl: tuple[str, ...] | None
    marks: set[str]
    run_marks: set[str]
    agent: str = ""
    source: str = ""
    """Of the uploads."""
    mounted: bool = False
    """Whether the agent mounts it."""
    uploads: dict[str, tuple[Known, dict[str, Any]]] = field(default_factory=dict)
    """Idempotency key -> the document that came with it, and its request."""


@dataclass
class Known:
    id: str
    base: Base
    access: AccessAttributes
    marks: set[str]
    jobs: list[str]
    assets: list[str]
    deleted: bool = False
    owed: bool = False
    """The index does not know of its newest rule: who was just let in may not find it yet."""
    chunk: str = ""
    """One of it."""
    question: str = ""
    """Of a correction, which has neither jobs nor pictures."""

    @property
    def mark(self) -> str:
        """The word that stands in its text."""
        return next(mark for mark in self.marks if mark.startswith(SECRET))


@dataclass
class World:
    bases: list[Base] = field(default_factory=list)
    documents: list[Known] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    sessions: list[tuple[str, str]] = field(default_factory=list)

    def readable(self, caller: Principal, known: Known) -> bool:
        may = caller.may_use(known.base.id) and caller.may_read(known.access, known.base.default_acl)
        return may and not known.deleted

    def forbidden(self, caller: Principal) -> set[str]:
        marks: set[str] = set()
        for known in self.documents:
            if not self.readable(caller, known):
                marks |= known.marks
        for base in self.bases:
            if not caller.may_use(base.id):
                marks |= base.marks
            if not (caller.may_use(base.id) and caller.unrestricted):
                marks |= base.run_marks
        return marks | {session for session, owner in self.sessions if owner != caller.name}


def _picture(number: int) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", (80, 60), (number * 9 % 255, 40, 90)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _access(draw: random.Random) -> AccessAttributes:
    acl = draw.choice([None, (), (), tuple(draw.sample(GROUPS, draw.randint(1, 2)))])
    return AccessAttributes(acl, draw.choice([None, None, None, *DEPARTMENTS]), draw.choice([0, 0, 0, 1, 5, 9]))


def _principal(draw: random.Random, world: World, number: int) -> Principal:
    granted = None if draw.random() < 0.3 else frozenset(base.id for base in world.bases if draw.random() < 0.7)
    return Principal(
        f"caller-{number}",
        granted,
        frozenset(draw.sample(GROUPS, draw.randint(0, 3))),
        draw.choice([None, *DEPARTMENTS]),
        draw.choice([0, 1, 5, 9]),
        unrestricted=draw.random() < 0.25,
    )


def _upload(mark: str, number: int, access: AccessAttributes) -> dict[str, Any]:
    """The request of a document that bears its mark everywhere."""
    text = (
        f"# Crane report {mark}\n\nThe crane report says {mark}. 岸桥检查 {mark}。\n\n"
        f"![plan {mark}](data:image/png;base64,{_picture(number)})\n\n| part | {mark} |\n|---|---|\n| crane | 7 |\n"
    )
    fields = {"security_level": str(access.security_level), "metadata": json.dumps({"mark": mark, "n": number})}
    if access.acl is not None:
        fields["acl"] = json.dumps(list(access.acl))
    if access.department:
        fields["department"] = access.department
    return {"files": {"file": (f"{mark}.md", text)}, "data": fields}


def _accepted(accepted: httpx.Response, base: Base, access: AccessAttributes, mark: str) -> Known:
    assert accepted.status_code == 202, accepted.text
    body = accepted.json()
    return Known(body["document_id"], base, access, {body["document_id"], body["job_id"], mark}, [body["job_id"]], [])


@pytest.fixture
async def world(api: httpx.AsyncClient, services: Services, work: Callable[[], int]) -> World:
    draw, world = random.Random(3), World()
    for number in range(BASES):
        mark = f"{SECRET}base{number}x{draw.randrange(10**9)}"
        body = {"name": mark, "description": f"{mark} here", "default_acl": DEFAULTS[number]}
        made = (await api.post("/v1/knowledge-bases", json=body)).json()
        acl = DEFAULTS[number]
        base = Base(made["id"], mark, None if acl is None else tuple(acl), {made["id"], mark}, set())
        world.bases.append(base)
        run = services.ledger.start_run(base.id, [f"file:///{mark}run/"], {}, str(uuid.uuid4()))
        services.ledger.record_receipts(run.id, [Receipt(f"file:///{mark}run/a", "", "failed", message=f"{mark}run")])
        services.ledger.finish_run(run.id, RunStatus.SUCCEEDED, {}, None, {"slowest": [{"uri": f"{mark}run"}]})
        base.run_marks |= {run.id, f"{mark}run"}
        world.runs.append(run.id)
        body = {"knowledge_base": base.id, "name": f"{mark}agent"}
        base.agent = (await api.post("/v1/agents", json=body)).json()["id"]
        base.marks |= {base.agent, f"{mark}agent"}
    for number in range(BASES * DOCUMENTS):
        base, access = world.bases[number % BASES], _access(draw)
        mark = f"{SECRET}doc{number}x{draw.randrange(10**9)}"
        accepted = await api.post(f"/v1/knowledge-bases/{base.id}/documents", **_upload(mark, number, access))
        world.documents.append(_accepted(accepted, base, access, mark))
    for one in world.documents:
        one.base.source = services.catalog.document(one.id, LOCAL).source_id
        one.base.marks.add(one.base.source)
    assert work() == BASES * DOCUMENTS
    for known in world.documents:
        known.assets = [asset.id for asset in services.catalog.assets(known.id)]
        assert known.assets and services.catalog.document(known.id, LOCAL).published_version == 1
        known.marks |= set(known.assets)
    return world


class Session:
    """One random caller after the other; every response is checked."""

    def __init__(
        self,
        api: httpx.AsyncClient,
        services: Services,
        world: World,
        draw: random.Random,
        work: Callable[[], int],
    ) -> None:
        self.api, self.services, self.world, self.draw, self.work = api, services, world, draw, work
        self.caller, self.headers = LOCAL, {}
        self.callers = 0
        self.shown = self.refused = self.dropped = 0

    def new_caller(self) -> None:
        self.callers += 1
        self.caller = _principal(self.draw, self.world, self.callers)
        secret = self.services.catalog.create_api_key(self.caller.name, self.caller)
        self.headers = {"Authorization": f"Bearer {secret}"}

    def change_a_rule(self) -> None:
        """In PostgreSQL at once; the index hears of it sometimes only."""
        known = self.draw.choice([one for one in self.world.documents if not one.deleted])
        kind = self.draw.random()
        if kind < 0.02 and sum(not one.deleted for one in self.world.documents) > DOCUMENTS:
            self.services.catalog.tombstone(known.id)
            known.deleted = True
        elif kind < 0.2:
            base, acl = known.base, self.draw.choice([None, (), ("finance",)])
            base.default_acl = acl
            self.services.catalog.update_knowledge_base(base.id, default_acl=acl, close=acl is None)
        else:
            known.access = _access(self.draw)
            self.services.catalog.update_document(known.id, access=known.access)
            known.owed = True
        if self.draw.random() < 0.04:
            self.services.drain_outbox()
            for one in self.world.documents:
                one.owed = False

    async def send(self, method: str, url: str, **request: Any) -> httpx.Response:
        """The response, without a mark that is not the caller's."""
        headers = self.headers | request.get("headers", {})
        response = await self.api.request(method, url, **{**request, "headers": headers})
        sent = url + json.dumps(request, ensure_ascii=False)
        told = response.text + response.content.decode("latin-1") + str(response.headers)
        leaked = {mark for mark in self.world.forbidden(self.caller) if mark in told and mark not in sent}
        assert not leaked, f"{method} {url} {request} told {self.caller} of {leaked}: {response.text[:2000]}"
        assert response.status_code < 500, response.text
        self.shown += SECRET in told
        counted = re.findall(r'"(dropped|checked|\w+_rounds)": ?\d', response.text)
        assert self.caller.unrestricted or not counted, f"{url} counted what {self.caller} may not see: {counted}"
        self.refused += response.status_code in (403, 404)
        return response

    async def as_if_it_were_not_there(self, method: str, pattern: str, key: str, **request: Any) -> None:
        """What is forbidden and what never was are answered in the same words."""
        answers = []
        for identity in (key, str(uuid.uuid4())):
            response = await self.send(method, pattern.format(identity), **request)
            body = re.sub(r'"request_id":"[^"]*"', "", response.text.replace(identity, "ID"))
            answers.append((response.status_code, body))
        assert answers[0] == answers[1], (pattern, self.caller)
        assert answers[0][0] in (403, 404)

    # -- endpoints ---------------------------------------------------------------------------------------------------

    async def retrieve(self) -> None:
        world, draw = self.world, self.draw
        base = draw.choice(world.bases)
        options: dict[str, Any] = {"top_k": 100, "candidate_k": 100, "mode": draw.choice(["sparse", "hybrid", "dense"])}
        options["expand_parents"] = draw.random() < 0.7
        wanted = [known for known in world.documents if known.base is base]
        if draw.random() < 0.3:
            wanted = draw.sample(world.documents, 5)
            options["document_ids"] = [known.id for known in wanted]
            wanted = [known for known in wanted if known.base is base]
        if draw.random() < 0.3:
            options["filters"] = {"not": {"field": "n", "operator": "lt", "value": 0}}
        if draw.random() < 0.4:
            # With a threshold that nothing passes, what is found is found by words in PostgreSQL.
            options["keyword_fallback"], options["score_threshold"] = True, draw.choice([None, 1e9])
        name = draw.choice([base.id, base.name])
        body = {"knowledge_base": name, "query": draw.choice(["crane report", "岸桥检查"]), "options": options}
        response = await self.send("POST", "/v1/retrieve", json=body)
        if draw.random() < 0.2:
            text = await self.send("POST", "/v1/context", json=body)
            assert text.status_code == response.status_code
        if not self.caller.may_use(base.id):
            assert response.status_code == 404
            return
        found = response.json()
        counts = {stage["name"]: stage["counts"] for stage in found["trace"]["stages"]}
        expected = {known.id for known in wanted if world.readable(self.caller, known)}
        missing = expected - {result["document_id"] for result in found["results"]}
        assert missing <= {known.id for known in wanted if known.owed}
        counted = len(wanted) if "document_ids" in options else evidence.MAX_PUSHED_DOCUMENTS + 1
        assert counts["scope"]["visible_documents"] == min(len(expected), counted)

    async def answer(self) -> None:
        base, streamed = self.draw.choice(self.world.bases), self.draw.random() < 0.5
        body: dict[str, Any] = {"knowledge_base": base.id, "question": "What does the crane report say?"}
        others = [session for session, owner in self.world.sessions if owner != self.caller.name]
        if others and self.draw.random() < 0.3:
            body["session_id"] = self.draw.choice(others)
        response = await self.send("POST", "/v1/answer", json=body | {"stream": streamed})
        if response.status_code == 200:
            self.world.sessions += [
                (one, self.caller.name) for one in re.findall(r'"session_id": ?"([^"]+)"', response.text)
            ]
        if "session_id" in body:
            assert response.status_code == 404 or "not_found" in response.text

    async def listing(self) -> None:
        base = self.draw.choice(self.world.bases)
        seen, cursor = set(), ""
        while True:
            url = f"/v1/knowledge-bases/{base.id}/documents?limit={self.draw.choice([1, 2, 50])}{cursor}"
            response = await self.send("GET", url)
            if not self.caller.may_use(base.id):
                assert response.status_code == 404
                return
            page = response.json()
            seen |= {item["id"] for item in page["items"]}
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        mine = (known for known in self.world.documents if known.base is base)
        assert seen == {known.id for known in mine if self.world.readable(self.caller, known)}

    async def document(self) -> None:
        known = self.uploaded()
        asset = self.draw.choice(known.assets)
        paths = [
            ("/v1/documents/{}", known.id),
            ("/v1/documents/{}/content", known.id),
            ("/v1/documents/{}/content?version=1", known.id),
            ("/v1/documents/{}/content?version=2", known.id),
            ("/v1/jobs/{}", known.jobs[0]),
            ("/v1/assets/{}", asset),
        ]
        pattern, key = self.draw.choice(paths)
        if not self.world.readable(self.caller, known):
            await self.as_if_it_were_not_there("GET", pattern, key)
            return
        response = await self.send("GET", pattern.format(key))
        assert response.status_code == (404 if "version=2" in pattern else 200), response.text

    async def change(self) -> None:
        """What a caller may not even see it cannot change."""
        hidden = [known for known in self.world.documents if not self.world.readable(self.caller, known)]
        if not hidden:
            return
        known = self.draw.choice(hidden)
        method, pattern, request = self.draw.choice(
            [
                ("PATCH", "/v1/documents/{}", {"json": {"metadata": {"a": 1}}}),
                ("POST", "/v1/documents/{}/retry", {}),
                ("DELETE", "/v1/documents/{}", {}),
                ("DELETE", "/v1/corrections/{}", {}),
            ]
        )
        await self.as_if_it_were_not_there(method, pattern, known.id, **request)

    async def run(self) -> None:
        number = self.draw.randrange(BASES)
        method, pattern = self.draw.choice(
            [("GET", "/v1/runs/{}"), ("POST", "/v1/runs/{}/cancel"), ("GET", "/v1/runs?limit=1"), ("GET", "/v1/runs")]
        )
        if "{}" in pattern and not self.caller.may_use(self.world.bases[number].id):
            await self.as_if_it_were_not_there(method, pattern, self.world.runs[number])
        else:
            await self.send(method, pattern.format(self.world.runs[number]))

    async def any_route(self) -> None:
        """A route of the schema, filled with the ids of anything: also of routes that came after this test. Who may
        change nothing also tries those that change something."""
        schema = self.routes
        method, path, parameters = self.draw.choice(
            [route for route in schema if route[0] == "get" or not self.caller.unrestricted]
        )
        known = self.uploaded()
        keys = [known.id, known.jobs[0], known.assets[0], known.base.id, known.base.name, *self.world.runs]
        keys += [known.base.agent, known.base.source]
        url = re.sub(r"\{[^}]*\}", lambda _: self.draw.choice(keys), path)
        query = {name: self.draw.choice([known.base.id, known.base.name]) for name in parameters}
        response = await self.send(method.upper(), url, params=query, **({} if method == "get" else {"json": {}}))
        assert method == "get" or response.status_code >= 400

    async def explain(self) -> None:
        """A chunk, a document or a text that the caller may not read is answered as one that is not there."""
        world, draw = self.world, self.draw
        known, base = draw.choice(world.documents), draw.choice(world.bases)
        if draw.random() < 0.8:
            base = known.base
        body: dict[str, Any] = {"knowledge_base": base.id, "query": "crane report", "options": {}}
        if draw.random() < 0.3:
            body["reader"] = {"groups": draw.sample(GROUPS, 1), "security_level": draw.choice([0, 5])}
        if draw.random() < 0.3:
            body["options"]["agent_id"] = draw.choice(world.bases).agent
        kind = draw.choice(["chunk_id", "document_id", "text"])
        target = {"chunk_id": known.chunk, "document_id": known.id, "text": known.mark}[kind]
        there = base is known.base and world.readable(self.caller, known)
        if there or not self.caller.may_use(base.id):
            response = await self.send("POST", "/v1/explain", json=body | {kind: target})
            may = "reader" not in body or self.caller.unrestricted
            mine = body["options"].get("agent_id", base.agent) == base.agent
            expected = 403 if not may else 200 if there and mine else 404
            assert response.status_code == expected, response.text
            return
        answers = []
        for sent in (target, str(uuid.uuid4())):
            response = await self.send("POST", "/v1/explain", json=body | {kind: sent})
            answers.append(re.sub(r'"request_id":"[^"]*"', "", response.text.replace(sent, "ID")))
        assert answers[0] == answers[1], (kind, self.caller)
        assert response.status_code in (403, 404)

    async def ask_an_agent(self) -> None:
        """An agent of another knowledge base is not there; one that mounts nothing finds nothing."""
        world, draw = self.world, self.draw
        base, other = draw.choice(world.bases), draw.choice(world.bases)
        options = {"agent_id": other.agent, "top_k": 100, "candidate_k": 100, "mode": "sparse", "expand_parents": False}
        body = {"knowledge_base": base.id, "query": "crane report", "options": options}
        response = await self.send("POST", "/v1/retrieve", json=body)
        if not self.caller.may_use(base.id) or other is not base:
            assert response.status_code == 404
            return
        found = {result["document_id"] for result in response.json()["results"]}
        wanted = [one for one in world.documents if one.base is base and not one.question and base.mounted]
        readable = {known.id for known in wanted if world.readable(self.caller, known)}
        corrections = {known.id for known in world.documents if known.question}
        assert found - corrections <= readable
        assert readable - found <= {known.id for known in wanted if known.owed}

    async def manage(self) -> None:
        """Mounts, and an agent's own fields: for administrators of its knowledge base."""
        base, draw = self.draw.choice(self.world.bases), self.draw
        source = {"source_id": draw.choice(self.world.bases).source, "priority": draw.randint(-5, 5)}
        method, pattern, request = draw.choice(
            [
                ("POST", "/v1/agents/{}/mounts", {"json": source}),
                ("POST", "/v1/agents/{}/mounts", {"json": {**source, "source_id": base.source}}),
                ("DELETE", "/v1/agents/{}/mounts/" + base.source, {}),
                ("PATCH", "/v1/agents/{}", {"json": {"hide_source_filename": draw.random() < 0.5}}),
                ("GET", "/v1/agents/{}/mounts", {}),
            ]
        )
        if not (self.caller.unrestricted and self.caller.may_use(base.id)):
            await self.as_if_it_were_not_there(method, pattern, base.agent, **request)
            return
        response = await self.send(method, pattern.format(base.agent), **request)
        if method == "POST" and response.status_code == 200:
            base.mounted = True
        elif method == "DELETE" and response.status_code == 200:
            base.mounted = False
        elif method == "POST":
            assert source["source_id"] != base.source and response.status_code == 404

    async def rule(self) -> None:
        """Knowledge bases, sources and agents: made, changed and deleted by administrators of the knowledge base."""
        base, draw, name = self.draw.choice(self.world.bases), self.draw, f"{SECRET}name{self.draw.randrange(10**9)}"
        named = draw.choice([base.id, base.name])
        paths: list[tuple[str, str, str, dict[str, Any]]] = [
            ("PATCH", "/v1/knowledge-bases/{}", named, {"json": {"description": "here"}}),
            ("DELETE", "/v1/knowledge-bases/{}", named, {}),
            ("GET", "/v1/sources/{}", base.source, {}),
            ("PATCH", "/v1/sources/{}", base.source, {"json": {"priority": draw.randint(-5, 5)}}),
            ("DELETE", "/v1/sources/{}", base.source, {}),
            ("DELETE", "/v1/agents/{}", base.agent, {}),
        ]
        bodies = [
            ("/v1/agents", {"name": name}),
            ("/v1/sources", {"kind": "bulk", "name": name}),
        ]
        if not (self.caller.unrestricted and self.caller.may_use(base.id)):
            if draw.random() < 0.6:
                method, pattern, key, request = draw.choice(paths)
                await self.as_if_it_were_not_there(method, pattern, key, **request)
                return
            url, body = draw.choice(bodies)
            await self.as_if_it_were_not_there_by_body(url, body, "knowledge_base", named)
            await self.as_if_it_were_not_there_by_body("/v1/knowledge-bases", {}, "name", base.name)
            return
        if self.caller.knowledge_bases is None:
            bodies.append(("/v1/knowledge-bases", {"name": name}))
        url, body = draw.choice(bodies)
        made = await self.send("POST", url, json=body | ({"knowledge_base": named} if "bases" not in url else {}))
        assert made.status_code == 201, made.text
        assert (await self.send("DELETE", f"{url}/{made.json()['id']}")).status_code == 200
        base.marks |= {made.json()["id"], name}
        method, pattern, key, request = draw.choice([one for one in paths if one[0] != "DELETE"])
        assert (await self.send(method, pattern.format(key), **request)).status_code == 200

    async def upload(self) -> None:
        """A key names an upload of one knowledge base, whatever came with it to others."""
        draw, number = self.draw, self.draw.randrange(BASES)
        base, key = self.world.bases[number], draw.choice(["import-1", "import-2"])
        mark, access = f"{SECRET}{key.replace('-', '')}base{number}", _access(draw)
        url, sent = "/v1/knowledge-bases/{}/documents", {"headers": {"Idempotency-Key": key}}
        request = _upload(mark, 100 + number, access) | sent
        if not (self.caller.unrestricted and self.caller.may_use(base.id)):
            await self.as_if_it_were_not_there("POST", url, draw.choice([base.id, base.name]), **request)
            return
        if key not in base.uploads:
            known = _accepted(await self.send("POST", url.format(base.id), **request), base, access, mark)
            assert self.work() == 1
            known.assets = [asset.id for asset in self.services.catalog.assets(known.id)]
            known.marks |= set(known.assets)
            self.describe(known)
            self.world.documents.append(known)
            base.uploads[key] = known, request
        known, request = base.uploads[key]
        other = _upload(mark, 100 + number, AccessAttributes((), None, 8)) | sent
        if not known.deleted:
            again = (await self.send("POST", url.format(base.id), **request)).json()
            assert (again["document_id"], again["job_id"]) == (known.id, known.jobs[0])
            assert (await self.send("POST", url.format(base.id), **other)).status_code == 409

    async def correct(self) -> None:
        """Write a correction, or the same one with another rule or with none, and list them."""
        world, draw = self.world, self.draw
        base, access = draw.choice(world.bases), _access(draw)
        known = next((one for one in world.documents if one.base is base and one.question and not one.deleted), None)
        mark = known.mark if known else f"{SECRET}correction{len(world.documents)}x{draw.randrange(10**9)}"
        body = {
            "knowledge_base": base.id,
            "question": f"What of the crane report {mark}?",
            "answer": f"The crane report says {mark}. 岸桥检查。",
            "agents": draw.choice([[], [base.agent]]),
            "access": {"acl": access.acl, "department": access.department, "security_level": access.security_level},
            "metadata": {"mark": mark, "n": len(world.documents)},
        }
        if known and draw.random() < 0.5:  # a new answer alone leaves who may read it
            access = known.access
            del body["access"], body["metadata"]
        if draw.random() < 0.5 or known:
            await self.corrections(base)
        if not (self.caller.unrestricted and self.caller.may_use(base.id)):
            # What is sent counts as known to the caller: another question than the one that is there.
            body |= {"question": "What?", "answer": "That.", "metadata": {}}
            await self.as_if_it_were_not_there_by_body("/v1/corrections", body, "knowledge_base", base.id)
            return
        response = await self.send("POST", "/v1/corrections", json=body)
        assert response.status_code == 201, response.text
        written = response.json()
        if known is None:
            known = Known(written["document_id"], base, access, {written["document_id"], mark}, [], [])
            known.question = body["question"]
            world.documents.append(known)
            base.marks.add(written["source_id"])
            self.describe(known)
        assert written["document_id"] == known.id
        known.access, known.owed = access, False
        if draw.random() < 0.3:
            assert (await self.send("DELETE", f"/v1/corrections/{known.id}")).status_code == 200
            known.deleted = True

    async def corrections(self, base: Base) -> None:
        response = await self.send("GET", "/v1/corrections", params={"knowledge_base": base.id})
        if not self.caller.may_use(base.id):
            assert response.status_code == 404
            return
        listed = {item["document_id"] for item in response.json()["items"]}
        mine = (known for known in self.world.documents if known.base is base and known.question)
        assert listed == {known.id for known in mine if self.world.readable(self.caller, known)}

    async def as_if_it_were_not_there_by_body(self, url: str, body: dict[str, Any], field_name: str, key: str) -> None:
        answers = []
        for identity in (key, str(uuid.uuid4())):
            response = await self.send("POST", url, json=body | {field_name: identity})
            text = re.sub(r'"request_id":"[^"]*"', "", response.text.replace(identity, "ID"))
            answers.append((response.status_code, text))
        assert answers[0] == answers[1] and answers[0][0] in (403, 404), (url, self.caller, answers)

    def uploaded(self) -> Known:
        return self.draw.choice([known for known in self.world.documents if not known.question])

    def describe(self, known: Known) -> None:
        """Its chunk, for `explain`."""
        with self.services.database.connection() as connection:
            row = connection.execute("SELECT id FROM chunks WHERE document_id = %s LIMIT 1", (known.id,)).fetchone()
        assert row is not None
        known.chunk = str(row["id"])
        known.marks.add(known.chunk)

    @property
    def routes(self) -> list[tuple[str, str, list[str]]]:
        schema = self.api._transport.app.openapi()  # type: ignore[attr-defined]
        return [
            (method, path, [one["name"] for one in operation.get("parameters", ()) if one["name"] == "knowledge_base"])
            for path, operations in schema["paths"].items()
            for method, operation in operations.items()
            if path.startswith("/v1/")
        ]


@pytest.mark.timeout(3600)
async def test_nothing_that_a_caller_may_not_read_is_ever_told(
    api: httpx.AsyncClient,
    services: Services,
    world: World,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(api, services, world, random.Random(5), work)
    second_check = PostgresEvidence.rows

    async def watched(*arguments: Any) -> dict[str, EvidenceRow]:
        found = await second_check(*arguments)
        session.dropped += len(arguments[3]) - len(found)
        return found

    monkeypatch.setattr(PostgresEvidence, "rows", watched)
    endpoints = [
        session.retrieve,
        session.retrieve,
        session.answer,
        session.listing,
        session.document,
        session.document,
        session.change,
    ]
    endpoints += [
        session.run,
        session.any_route,
        session.explain,
        session.ask_an_agent,
        session.manage,
        session.rule,
        session.upload,
        session.correct,
    ]
    for known in world.documents:
        session.describe(known)
    for case in range(CASES):
        # Without the documents' ids in the index search, as in a large knowledge base, the second check stands alone.
        monkeypatch.setattr(evidence, "MAX_PUSHED_DOCUMENTS", session.draw.choice([1, 1000]))
        if case % 5 == 0:
            session.new_caller()
        for _ in range(session.draw.choice([0, 0, 1, 2])):
            session.change_a_rule()
        await endpoints[case % len(endpoints)]()
    assert session.shown > CASES / 10 and session.refused > CASES / 10 and session.dropped
    told = f"{session.shown} told something, {session.refused} refused, {session.dropped} dropped by the second check"
    print(f"{CASES} cases, {session.callers} callers, {told}")
