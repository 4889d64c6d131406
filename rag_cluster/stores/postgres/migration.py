"""Bringing a database to this version's schema."""

from __future__ import annotations

from pathlib import Path

import psycopg
import psycopg.conninfo
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from rag_cluster.errors import InvalidSettingError, StoreUnavailableError

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x7261675F  # "rag_": two processes may migrate at once, one waits for the other
_CONNECT_SECONDS = 10
_START_SECONDS = 60.0


def head() -> str:
    """The newest revision: files are named NNNN_what.py after the revision that they hold."""
    return max(path.stem.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def migrate(dsn: str) -> None:
    """Upgrade to the newest schema. Safe to call from several processes at once; a few milliseconds when up to date.

    InvalidSettingError when this is no DSN or the database belongs to a newer rag_cluster; StoreUnavailableError on an
    outage.
    """
    try:
        psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:  # its text may hold a piece of the password
        raise InvalidSettingError(
            "RAG_POSTGRES_DSN is not of the form postgresql://USER:PASSWORD@HOST:PORT/DATABASE (special characters "
            "percent-encoded)"
        ) from None
    try:
        if _revision(dsn) != head():
            _upgrade(dsn)
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(f"PostgreSQL: {str(error).strip()}") from error


def _still_starts(error: BaseException) -> bool:
    """A server that was killed takes no connections until it has recovered: it is there, and says so."""
    return "the database system is" in str(error)  # starting up, in recovery mode; there is no SQLSTATE to look at


@retry(
    retry=retry_if_exception(_still_starts),
    stop=stop_after_delay(_START_SECONDS),
    wait=wait_fixed(0.1),
    reraise=True,
)
def _revision(dsn: str) -> str | None:
    with psycopg.connect(dsn, connect_timeout=_CONNECT_SECONDS, autocommit=True) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except psycopg.errors.UndefinedTable:
            return None
    revision = row[0] if row else None
    if revision is not None and revision > head():
        raise InvalidSettingError(
            f"the database has schema {revision}, this rag_cluster knows up to {head()}: upgrade rag_cluster"
        )
    return revision


def _upgrade(dsn: str) -> None:
    # Imported only when there is something to do: they cost more than all the rest of a start.
    import alembic.command
    import alembic.config
    import sqlalchemy

    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(dsn, connect_timeout=_CONNECT_SECONDS),
        poolclass=sqlalchemy.NullPool,
    )
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, "head")
    except sqlalchemy.exc.OperationalError as error:
        raise StoreUnavailableError(f"PostgreSQL: {str(error.orig).strip()}") from error
