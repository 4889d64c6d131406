"""Connections: lost and found again, bounded, timed; migration by several at once."""

from __future__ import annotations

import asyncio
import importlib
import pickle
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from rag_cluster.errors import InvalidSettingError, StoreUnavailableError
from rag_cluster.stores.postgres.catalog import PostgresCatalog
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.migration import MIGRATIONS, head, migrate
from tests.fixtures.postgres import PostgresServer


@pytest.fixture(scope="module")
def _killable() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="rag-pg-", ignore_cleanup_errors=True) as directory:
        server = PostgresServer(Path(directory) / "data")
        yield server
        server.close()


@pytest.fixture
def own_server(_killable: PostgresServer) -> PostgresServer:
    """A running server, with its durability on, of these tests' own."""
    _killable.restart()
    return _killable


def test_a_killed_and_restarted_server_is_found_again_and_kept_what_was_committed(own_server: PostgresServer) -> None:
    migrate(own_server.dsn)
    database = Database(own_server.dsn, pool_size=4, timeout=20)
    catalog = PostgresCatalog(database)
    catalog.create_knowledge_base("kept")
    with ThreadPoolExecutor(4) as threads:  # fill the pool with connections that will all be dead
        list(threads.map(lambda _: _slow(database), range(4)))
    own_server.kill()
    own_server.restart()
    started = time.monotonic()
    assert catalog.knowledge_base("kept").name == "kept"
    assert time.monotonic() - started < 15
    database.close()


def _slow(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("SELECT pg_sleep(0.1)")


def test_whoever_finds_the_server_gone_revives_it(own_server: PostgresServer) -> None:
    calls = []

    def revive() -> None:
        calls.append(threading.get_ident())
        own_server.restart()

    database = Database(own_server.dsn, pool_size=2, timeout=30, revive=revive)
    database.ping()
    own_server.kill()
    database.ping()
    assert calls
    database.close()


async def test_the_event_loop_revives_it_too(own_server: PostgresServer) -> None:
    database = Database(own_server.dsn, pool_size=2, timeout=30, revive=own_server.restart)
    for round_number in range(2):
        if round_number:
            own_server.kill()
        async with database.async_connection() as connection:
            await connection.execute("SELECT 1")
    await database.aclose()


def test_a_server_that_is_not_there_is_unavailable_within_the_timeout(tmp_path: Path) -> None:
    database = Database(f"postgresql://x@/db?host={tmp_path}", pool_size=1, timeout=1)
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        database.ping()
    assert time.monotonic() - started < 15
    database.close()


def test_a_statement_ends_at_the_timeout(postgres_dsn: str) -> None:
    database = Database(postgres_dsn, pool_size=1, timeout=0.3)
    with pytest.raises(StoreUnavailableError, match="statement timeout"), database.connection() as connection:
        connection.execute("SELECT pg_sleep(5)")
    database.ping()
    database.close()


def test_a_server_that_hangs_is_unavailable_within_the_timeout_and_used_again_afterwards(
    own_server: PostgresServer,
) -> None:
    database = Database(own_server.dsn, pool_size=1, timeout=1)
    database.ping()
    with own_server.stopped():
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="did not answer within 3 s"):
            database.ping()
        assert time.monotonic() - started < 20
    database.ping()
    database.close()


async def test_a_request_that_is_given_up_does_not_wait_for_a_server_that_hangs(own_server: PostgresServer) -> None:
    database = Database(own_server.dsn, pool_size=1, timeout=30)
    async with database.async_connection() as connection:
        await connection.execute("SELECT 1")
    with own_server.stopped():
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), database.async_connection() as connection:
                await connection.execute("SELECT 1")
        assert time.monotonic() - started < 8, "psycopg alone takes ten seconds, or for ever"
    async with database.async_connection() as connection:
        assert (await (await connection.execute("SELECT 7 AS seven")).fetchone()) == {"seven": 7}
    await database.aclose()


async def test_on_the_event_loop_a_statement_ends_on_this_side_too(own_server: PostgresServer) -> None:
    database = Database(own_server.dsn, pool_size=1, timeout=1)
    async with database.async_connection() as connection:
        await connection.execute("SELECT 1")
    with own_server.stopped(), pytest.raises(StoreUnavailableError, match="did not answer within 3 s"):
        async with database.async_connection() as connection:
            await connection.execute("SELECT 1")
    await database.aclose()


def test_a_process_never_holds_more_connections_than_its_pool(postgres_dsn: str) -> None:
    database = Database(postgres_dsn, pool_size=3, timeout=20)
    with ThreadPoolExecutor(12) as threads:
        list(threads.map(lambda _: _slow(database), range(12)))
    with database.connection() as connection:
        row = connection.execute(
            "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
        ).fetchone()
    assert row is not None and row["n"] <= 3
    database.close()


def test_a_transaction_is_all_or_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError), database.transaction() as connection:
        connection.execute("INSERT INTO api_keys (id, name, secret_sha256) VALUES (gen_random_uuid(), 'a', 'a')")
        raise RuntimeError
    assert not PostgresCatalog(database).has_api_keys()


def test_a_database_travels_to_another_process_without_its_pools(database: Database) -> None:
    database.ping()
    copy = pickle.loads(pickle.dumps(PostgresCatalog(database)))
    assert not copy.has_api_keys()
    copy._database.close()


async def test_cancelling_stops_the_statement_in_the_server(async_database: Database) -> None:
    async def sleep() -> None:
        async with async_database.async_connection() as connection:
            await connection.execute("SELECT pg_sleep(20)")

    task = asyncio.create_task(sleep())
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with async_database.async_connection() as connection:
        cursor = await connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(20)%' AND state = 'active'"
        )
        assert await cursor.fetchone() is None


# -- migration -------------------------------------------------------------------------------------------------------


def test_two_may_migrate_at_once_and_again(empty_postgres_dsn: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(migrate, [empty_postgres_dsn] * 4))
    migrate(empty_postgres_dsn)
    with psycopg.connect(empty_postgres_dsn) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(head(),)]


def test_an_up_to_date_database_costs_next_to_nothing(postgres_dsn: str) -> None:
    best = min(_seconds(postgres_dsn) for _ in range(5))
    assert best < 0.1


def _seconds(dsn: str) -> float:
    started = time.perf_counter()
    migrate(dsn)
    return time.perf_counter() - started


def test_a_database_of_a_newer_version_is_refused(empty_postgres_dsn: str) -> None:
    migrate(empty_postgres_dsn)
    with psycopg.connect(empty_postgres_dsn) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(InvalidSettingError, match="9999"):
        migrate(empty_postgres_dsn)


def test_an_upgrade_knows_what_the_active_index_holds(empty_postgres_dsn: str) -> None:
    migrate(empty_postgres_dsn)
    with psycopg.connect(empty_postgres_dsn, autocommit=True) as connection:
        revision = importlib.import_module("rag_cluster.stores.postgres.migrations.versions.0004_index_parts")
        connection.execute(
            """DROP TABLE index_parts; SET session_replication_role = replica;
               INSERT INTO indexes (collection, embedder_fingerprint, dimension, state)
                 VALUES ('a', 'a', 8, 'active'), ('b', 'b', 8, 'building');
               INSERT INTO document_parts VALUES
                 (gen_random_uuid(), 1, 0, 0, 9, now()), (gen_random_uuid(), 1, 0, 0, 9, NULL)"""
        )
        connection.execute(revision.SCHEMA)
        held = connection.execute("SELECT i.collection FROM index_parts JOIN indexes i ON i.id = index_id").fetchall()
    assert held == [("a",)]


def test_migrating_an_unreachable_server_is_an_outage(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        migrate(f"postgresql://x@/db?host={tmp_path}")


def test_file_names_tell_the_head_revision() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == head()
