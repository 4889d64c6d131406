"""What a run asks of S3, counted at the client of a real server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiobotocore.client import AioBaseClient

from rag_cluster.domain.documents import PlannedFile, SourceKind
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
from rag_cluster.ingestion.plan import plan
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.stores.inputs import FsspecInputFiles
from rag_cluster.stores.objects import FsspecObjectStore
from rag_cluster.stores.s3 import S3Options
from rag_cluster.stores.snapshots import ParquetSnapshotStore
from tests.fixtures.s3 import S3Server
from tests.fixtures.write_path import Bench


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Operation -> how often a client was asked for it."""
    counts: Counter[str] = Counter()
    call = AioBaseClient._make_api_call

    async def counted(self: Any, operation: str, parameters: Any) -> Any:
        counts[operation] += 1
        return await call(self, operation, parameters)

    monkeypatch.setattr(AioBaseClient, "_make_api_call", counted)
    yield counts


@pytest.fixture
def on_s3(bench: Bench, s3_server: S3Server) -> WritePath:
    """The bench's write path with inputs and objects on S3."""
    access = {
        "endpoint_url": s3_server.endpoint_url,
        "access_key": s3_server.access_key,
        "secret_key": s3_server.secret_key,
    }
    objects = FsspecObjectStore(f"s3://{s3_server.new_prefix()}", S3Options(**access))
    return replace(
        bench.write_path,
        inputs=FsspecInputFiles(S3Options(**access)),
        objects=objects,
        snapshots=ParquetSnapshotStore(objects),
        drain=lambda: 0,
    )


def test_a_run_in_which_nothing_changed_lists_and_asks_nothing_else_of_s3(
    bench: Bench, on_s3: WritePath, s3_server: S3Server, asked: Counter[str]
) -> None:
    prefix, files = s3_server.new_prefix(), s3_server.filesystem()
    for number in range(3):
        files.pipe_file(f"{prefix}/泊位 {number}.txt", f"Berth {number} is {number + 5} metres deep.".encode())
    source = on_s3.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    for item in plan(on_s3, bench.base.id, [f"s3://{prefix}/"]):
        assert isinstance(item, PlannedFile)
        work = steps.Work(bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
        parts = steps.prepare(on_s3, work, owner="run")
        assert isinstance(parts, list)
        steps.index(on_s3, steps.open_index(on_s3), parts)
    assert asked["GetObject"] >= 3 and asked["PutObject"] >= 6, "the counter sees what is read and written"

    asked.clear()
    report = run_ingestion(
        lambda: on_s3, bench.base.name, [f"s3://{prefix}/"], IngestionOptions(progress=False, reference=True)
    )
    assert report.ok and report.outcomes["unchanged"] == 3
    assert asked == {"ListObjectsV2": 1}
