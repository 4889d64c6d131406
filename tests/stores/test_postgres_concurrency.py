"""What must hold when several do the same at once, on a real PostgreSQL."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from psycopg.conninfo import make_conninfo

from rag_cluster.domain import ids
from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.domain.documents import Document, OutboxKind, SourceKind
from rag_cluster.errors import ClaimLostError, DocumentBusyError, IdempotencyConflictError, NotFoundError
from rag_cluster.stores.postgres.catalog import PostgresCatalog
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.ledger import PostgresLedger
from rag_cluster.stores.postgres.outbox import PostgresOutbox
from rag_cluster.stores.postgres.uploads import PostgresUploadQueue
from tests.contracts.ledger_steps import Ingest, listed
from tests.contracts.test_upload_queue import request

T = TypeVar("T")
THREADS = 8


def at_once(*calls: Callable[[], T]) -> list[T | Exception]:
    """Results of calls that start together, an exception being a result too."""
    barrier = threading.Barrier(len(calls))

    def call(function: Callable[[], T]) -> T | Exception:
        barrier.wait()
        try:
            return function()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(call, calls))


@pytest.fixture
def ingest(catalog: PostgresCatalog, ledger: PostgresLedger) -> Ingest:
    return Ingest(catalog, ledger)


def test_of_many_claimers_one_wins(ingest: Ingest) -> None:
    for n in range(5):
        file = listed(f"file:///{n}")
        results = at_once(*(lambda i=i: ingest.claim(file, owner=f"w{i}") for i in range(THREADS)))  # noqa: B023
        winners = [result for result in results if result is not None]
        assert len(winners) == 1 and not isinstance(winners[0], Exception)
        assert [version.version for version in ingest.catalog.versions(winners[0].document_id)] == [1]


def test_the_last_two_parts_at_once_publish_once(ingest: Ingest) -> None:
    for n in range(5):
        claim = ingest.must_claim(listed(f"file:///{n}"))
        first, second = ingest.snapshot(claim, count=2)
        results = at_once(lambda: ingest.complete(claim, first), lambda: ingest.complete(claim, second))  # noqa: B023
        assert sorted(map(str, results)) == ["False", "True"]
        assert ingest.catalog.document(claim.document_id, LOCAL).visible


def test_the_same_part_at_once_is_written_once(ingest: Ingest) -> None:
    claim = ingest.must_claim()
    (part,) = ingest.snapshot(claim)
    assert at_once(*[lambda: ingest.complete(claim, part)] * 4) == [True] * 4
    assert ingest.catalog.remains(claim.document_id)["chunks"] == 2


def test_a_delete_and_a_claim_at_once_never_both_win(ingest: Ingest) -> None:
    for n in range(10):
        file = listed(f"file:///{n}")
        document_id = ingest.ready(file).document_id
        changed = listed(f"file:///{n}", etag="2")
        deleted, claim = at_once(
            lambda: ingest.catalog.tombstone(document_id),  # noqa: B023
            lambda: ingest.must_claim(changed),  # noqa: B023
        )
        if isinstance(deleted, DocumentBusyError):
            assert ingest.catalog.document(document_id, LOCAL).visible
        else:  # deleted first, then claimed for a new life: the old version stays gone
            assert not isinstance(claim, Exception)
            assert not ingest.catalog.document(document_id, LOCAL).visible
        assert ingest.complete(claim, ingest.snapshot(claim)[0])  # type: ignore[arg-type]


def test_a_delete_and_a_late_part_at_once_leave_nothing_visible(ingest: Ingest, database: Database) -> None:
    for n in range(10):
        claim = ingest.must_claim(listed(f"file:///{n}"))
        (part,) = ingest.snapshot(claim)
        with database.connection() as connection:  # its lease ended, nobody took over
            connection.execute("UPDATE document_versions SET claim_until = now() - interval '1 s'")
        deleted, completed = at_once(
            lambda: ingest.catalog.tombstone(claim.document_id),  # noqa: B023
            lambda: ingest.complete(claim, part),  # noqa: B023
        )
        assert not isinstance(deleted, Exception)
        assert completed is True or isinstance(completed, ClaimLostError)
        with pytest.raises(NotFoundError):
            ingest.catalog.document(claim.document_id, LOCAL)


def test_no_document_is_registered_behind_the_back_of_a_deleted_knowledge_base(
    catalog: PostgresCatalog, ledger: PostgresLedger, database: Database
) -> None:
    for n in range(5):
        ingest = Ingest(catalog, ledger, name=f"kb{n}")
        results = at_once(
            lambda: catalog.delete_knowledge_base(ingest.knowledge_base_id),  # noqa: B023
            *(lambda i=i: ingest.claim(listed(f"file:///{i}"), owner=f"w{i}") for i in range(4)),  # noqa: B023
        )
        if isinstance(results[0], DocumentBusyError):
            continue
        with database.connection() as connection:
            rows = connection.execute(
                "SELECT 1 FROM documents WHERE knowledge_base_id = %s AND deleted_at IS NULL",
                (ingest.knowledge_base_id,),
            ).fetchall()
        assert rows == []
        assert all(isinstance(result, NotFoundError) for result in results[1:])


def test_changing_a_document_while_its_knowledge_base_is_deleted_takes_turns(
    catalog: PostgresCatalog, ledger: PostgresLedger
) -> None:
    for n in range(8):
        ingest = Ingest(catalog, ledger, name=f"kb{n}")
        claims = [ingest.ready(listed(f"file:///{i}")) for i in range(4)]
        results = at_once(
            lambda: catalog.delete_knowledge_base(ingest.knowledge_base_id),  # noqa: B023
            *(
                lambda i=i, claim=claim: catalog.update_document(  # type: ignore[misc]
                    claim.document_id, access=AccessAttributes((f"g{i}",))
                )
                for i, claim in enumerate(claims)
            ),
        )
        assert not isinstance(results[0], Exception)
        assert all(isinstance(result, (Document, NotFoundError)) for result in results[1:])


def test_workers_never_get_the_same_job(ingest: Ingest, queue: PostgresUploadQueue) -> None:
    jobs = {queue.submit(request(ingest)).id for _ in range(24)}

    def work(worker: str) -> list[str]:
        taken = []
        while claimed := queue.claim(worker, 30):
            taken.append(claimed[0].id)
        return taken

    results = at_once(*(lambda i=i: work(f"w{i}") for i in range(THREADS)))
    taken = [job for result in results for job in result]  # type: ignore[union-attr]
    assert sorted(taken) == sorted(jobs)


def test_one_idempotency_key_at_once_makes_one_job(ingest: Ingest, queue: PostgresUploadQueue) -> None:
    results = at_once(*[lambda: queue.submit(request(ingest, idempotency_key="k")).id] * THREADS)
    assert len(set(results)) == 1 and isinstance(results[0], str)
    assert queue.backlog() == 1
    (conflict,) = at_once(lambda: queue.submit(request(ingest, idempotency_key="k", sha256="x")))
    assert isinstance(conflict, IdempotencyConflictError)


def test_an_owed_effect_is_claimed_by_one(outbox: PostgresOutbox, ingest: Ingest) -> None:
    for n in range(40):
        outbox.add("index_access", ids.upload_document_id(), ingest.knowledge_base_id, {"n": n})  # type: ignore[arg-type]
    results = at_once(*[lambda: [entry.id for entry in outbox.claim(10, 30)]] * THREADS)
    taken = [entry for result in results for entry in result]  # type: ignore[union-attr]
    assert len(taken) == len(set(taken)) == 40


def test_equal_attributes_at_once_get_one_key(ingest: Ingest) -> None:
    access = AccessAttributes(("a", "b"), "d", 4)
    claims = at_once(
        *(lambda i=i: ingest.claim(listed(f"file:///{i}", access=access), owner=f"w{i}") for i in range(THREADS))
    )
    documents = [ingest.catalog.document(claim.document_id, LOCAL) for claim in claims]  # type: ignore[union-attr]
    assert len({document.access_key for document in documents}) == 1


def test_sources_and_knowledge_bases_and_indexes_are_made_once(catalog: PostgresCatalog) -> None:
    made = at_once(*[lambda: catalog.create_knowledge_base("kb").id] * 4)
    (base,) = [result for result in made if isinstance(result, str)]
    assert len(set(at_once(*[lambda: catalog.ensure_source(base, SourceKind.BULK, "s").id] * 4))) == 1
    states = at_once(*(lambda i=i: catalog.ensure_index(f"e{i}", 8).state for i in range(4)))
    assert sorted(map(str, states)) == ["active", "building", "building", "building"]


def test_no_plan_claims_more_effects_than_the_limit(postgres_dsn: str) -> None:
    # What the planner takes once the table's statistics say so: a sub-select that it runs again for every row.
    methods = ("hashjoin", "mergejoin", "hashagg", "sort", "material")
    options = " ".join(f"-c enable_{method}=off" for method in methods)
    database = Database(make_conninfo(postgres_dsn, options=options))
    try:
        outbox = PostgresOutbox(database)
        for number in range(3):
            outbox.add(OutboxKind.INDEX_ACCESS, str(uuid.uuid4()), str(uuid.uuid4()), {"number": number})
        assert [entry.payload["number"] for entry in outbox.claim(2, 30)] == [0, 1]
    finally:
        database.close()
