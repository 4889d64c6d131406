"""PostgreSQL is killed while several workers write: what was said to be done is there, once, and the rest gets done."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.errors import ClaimLostError, StoreUnavailableError
from rag_cluster.stores.postgres.catalog import PostgresCatalog
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.ledger import PostgresLedger
from rag_cluster.stores.postgres.migration import migrate
from tests.contracts.ledger_steps import Ingest, listed, part_content, parts
from tests.fixtures.postgres import PostgresServer

WORKERS, DOCUMENTS, PARTS, KILLS = 3, 60, 3, 3


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="rag-pg-", ignore_cleanup_errors=True) as directory:
        server = PostgresServer(Path(directory) / "data")
        yield server
        server.close()


def test_a_server_that_still_recovers_is_waited_for() -> None:
    message = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is in recovery mode\0\0"
    refusal = b"E" + (len(message) + 4).to_bytes(4, "big") + message
    refused = 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def refuse_thrice() -> None:
            nonlocal refused
            while refused < 3:
                connection, _ = server.accept()
                with connection:
                    size = int.from_bytes(connection.recv(4), "big")
                    if connection.recv(size - 4)[:4] != b"\x04\xd2\x16\x2f":  # that asks for TLS
                        refused += 1
                        connection.sendall(refusal)
                    else:
                        connection.sendall(b"N")

        thread = threading.Thread(target=refuse_thrice, daemon=True)
        thread.start()
        with pytest.raises(StoreUnavailableError):
            migrate(f"postgresql://u@127.0.0.1:{port}/d?sslmode=disable&gssencmode=disable&connect_timeout=1")
        thread.join(5)
    assert refused == 3


class Worker:
    """Brings its share of the documents to READY, however often the store goes away."""

    def __init__(self, ingest: Ingest, number: int) -> None:
        self.ingest, self.owner = ingest, f"w{number}"
        self.uris = [f"file:///{n}" for n in range(DOCUMENTS) if n % WORKERS == number]
        self.acknowledged: list[str] = []

    def work(self) -> list[str]:
        for uri in self.uris:
            deadline = time.monotonic() + 120
            while not self._once(uri):
                assert time.monotonic() < deadline, f"{uri} never became READY"
        return self.acknowledged

    def _once(self, uri: str) -> bool:
        """One attempt of a worker that knows nothing of earlier ones; whether the document is READY now."""
        ingest = self.ingest
        try:
            if ingest.plan(listed(uri)) == "unchanged":
                return True
            claim = ingest.must_claim(listed(uri), owner=self.owner)
            if not claim.resumed:
                made = parts(claim, PARTS, 20)
                ingest.ledger.commit_snapshot(claim, sha256=uri, size=10, parts=made)
            for part in ingest.ledger.pending_parts(claim.document_id, claim.version):
                if ingest.ledger.complete_part(claim, part_content(claim, ingest.knowledge_base_id, part)):
                    self.acknowledged.append(claim.document_id)
        except (StoreUnavailableError, ClaimLostError):
            return False
        return False  # seen as READY by the next look only


def test_killing_postgresql_loses_and_doubles_nothing(own_server: PostgresServer) -> None:
    lock = threading.Lock()

    def revive() -> None:
        with lock:
            own_server.restart()

    migrate(own_server.dsn)
    database = Database(own_server.dsn, pool_size=WORKERS, timeout=60, revive=revive)
    catalog, ledger = PostgresCatalog(database), PostgresLedger(database)
    ingest = Ingest(catalog, ledger)
    workers = [Worker(ingest, number) for number in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as threads:
        running = [threads.submit(worker.work) for worker in workers]
        for _ in range(KILLS):
            time.sleep(0.4)
            with lock:
                own_server.kill()
        acknowledged = [document for future in running for document in future.result()]
    assert len(set(acknowledged)) == len(acknowledged), "published twice"
    documents, _ = catalog.list_documents(ingest.knowledge_base_id, LOCAL, limit=1000)
    assert len(documents) == DOCUMENTS
    for document in documents:
        assert (document.status, document.published_version) == ("READY", 1)
        assert catalog.remains(document.id)["chunks"] == PARTS * 20
    database.close()
