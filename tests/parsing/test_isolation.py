from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rag_cluster.errors import (
    CorruptDocumentError,
    DocumentTooLargeError,
    EmptyDocumentError,
    MissingDependencyError,
    ParseCrashError,
    ParseTimeoutError,
    UnsupportedDocumentTypeError,
)
from rag_cluster.parsing.isolation import IsolatedParser
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.settings import Settings
from tests.parsing.conftest import MakeSource

HOSTILE = {".bad": "tests.parsing.hostile:Hostile"}


@pytest.fixture
def parser() -> Iterator[IsolatedParser]:
    with IsolatedParser(ParseLimits(timeout=20, memory_bytes=2 << 30), parsers=HOSTILE) as made:
        yield made


def pid_of(parser: IsolatedParser, make_source: MakeSource) -> int:
    return int(parser.parse(make_source("pid.bad", "pid")).blocks[0].content.split()[1])


def test_limits_default_to_the_settings() -> None:
    limits, settings = ParseLimits(), Settings(_env_file=None)  # type: ignore[call-arg]
    assert limits == ParseLimits(
        settings.max_file_bytes,
        settings.max_expanded_bytes,
        settings.max_expansion_ratio,
        settings.max_pages,
        settings.max_image_pixels,
        settings.document_timeout,
        settings.parse_memory_bytes,
        settings.ocr_max_pictures,
    )


def test_a_document_is_parsed_in_another_process_without_a_gpu(parser: IsolatedParser, make_source: MakeSource) -> None:
    content = parser.parse(make_source("a.bad", "pid")).blocks[0].content
    assert f"pid {os.getpid()}" not in content and "cuda=''" in content


def test_errors_come_back_as_themselves(parser: IsolatedParser, make_source: MakeSource) -> None:
    with pytest.raises(EmptyDocumentError, match=r"no bytes"):
        parser.parse(make_source("a.txt", b""))
    with pytest.raises(UnsupportedDocumentTypeError, match=r"\.xyz"):
        parser.parse(make_source("a.xyz", b"x"))
    with pytest.raises(UnsupportedDocumentTypeError, match="executable"):
        parser.parse(make_source("a.txt", b"\x7fELF" + b"\x00" * 60))


def test_an_unexpected_exception_is_a_corrupt_document(parser: IsolatedParser, make_source: MakeSource) -> None:
    before = pid_of(parser, make_source)
    with pytest.raises(CorruptDocumentError, match=r"KeyError.*unexpected"):
        parser.parse(make_source("a.bad", "raise"))
    assert pid_of(parser, make_source) == before


def test_a_parser_that_cannot_be_imported_is_not_the_documents_fault(make_source: MakeSource) -> None:
    with IsolatedParser(parsers={".bad": "no_such_module:Parser"}) as parser, pytest.raises(MissingDependencyError):
        parser.parse(make_source("a.bad", "x"))


def test_the_third_death_on_the_same_input_is_the_contents_fault(
    parser: IsolatedParser, make_source: MakeSource, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with pytest.raises(ParseCrashError, match="SIGSEGV"):
        parser.parse(make_source("a.bad", f"crash {log}"))
    assert log.read_text() == "xxx"
    assert parser.parse(make_source("b.txt", "still works")).blocks[0].content == "still works"


def test_a_failure_tells_of_the_death_that_repeats_and_not_of_a_kill_from_outside(
    parser: IsolatedParser, make_source: MakeSource, tmp_path: Path
) -> None:
    with pytest.raises(ParseCrashError, match="SIGSEGV"):
        parser.parse(make_source("a.bad", f"crash-and-be-killed {tmp_path / 'log'}"))


def test_one_death_is_tried_again(parser: IsolatedParser, make_source: MakeSource, tmp_path: Path) -> None:
    assert parser.parse(make_source("a.bad", f"crash-once {tmp_path / 'log'}")).blocks


def test_a_child_killed_from_outside_between_documents_is_replaced(
    parser: IsolatedParser, make_source: MakeSource
) -> None:
    first = pid_of(parser, make_source)
    os.kill(first, signal.SIGKILL)
    assert pid_of(parser, make_source) != first


def test_a_hanging_parser_is_killed_at_its_limit(make_source: MakeSource, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with IsolatedParser(ParseLimits(timeout=0.7), parsers=HOSTILE) as parser:
        parser.parse(make_source("a.txt", "warm"))
        started = time.monotonic()
        with pytest.raises(ParseTimeoutError, match=r"0\.7 s"):
            parser.parse(make_source("a.bad", f"hang {log}"))
        assert time.monotonic() - started < 30
        assert log.read_text() == "xx"
        assert parser.parse(make_source("b.txt", "still works")).blocks


def test_what_a_parser_started_dies_with_it(make_source: MakeSource, tmp_path: Path) -> None:
    log = tmp_path / "pid"
    with IsolatedParser(ParseLimits(timeout=1), parsers=HOSTILE) as parser, pytest.raises(ParseTimeoutError):
        parser.parse(make_source("a.bad", f"fork {log}"))
    time.sleep(0.2)
    assert not psutil.pid_exists(int(log.read_text())) or (
        psutil.Process(int(log.read_text())).status() == psutil.STATUS_ZOMBIE
    )


def test_memory_beyond_the_limit_is_too_large_a_document(parser: IsolatedParser, make_source: MakeSource) -> None:
    with pytest.raises(DocumentTooLargeError, match="memory"):
        parser.parse(make_source("a.bad", "hog"))
    assert parser.parse(make_source("b.txt", "still works")).blocks


def test_noise_on_the_standard_streams_does_not_break_the_protocol(
    parser: IsolatedParser, make_source: MakeSource
) -> None:
    assert parser.parse(make_source("a.bad", "print")).blocks


def test_a_copy_sent_elsewhere_starts_its_own_child(parser: IsolatedParser, make_source: MakeSource) -> None:
    copy = pickle.loads(pickle.dumps(parser))
    with copy:
        assert pid_of(copy, make_source) != pid_of(parser, make_source)


def test_a_child_outlives_the_thread_that_first_used_it(parser: IsolatedParser, make_source: MakeSource) -> None:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(pid_of(parser, make_source)))
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert pid_of(parser, make_source) == seen[0]


def test_the_child_dies_with_its_owner(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("a.bad", "pid")
    script = textwrap.dedent(f"""
        import os, signal
        from rag_cluster.domain.blocks import DocumentSource
        from rag_cluster.parsing.isolation import IsolatedParser
        parser = IsolatedParser(parsers={HOSTILE!r})
        print(parser.parse(DocumentSource("d", 1, "a.bad", {source.path!r})).blocks[0].content.split()[1], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, timeout=60)
    child = int(done.stdout)
    deadline = time.monotonic() + 5
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.05)


def test_two_hundred_documents_do_not_leak(parser: IsolatedParser, make_source: MakeSource) -> None:
    source = make_source("a.html", "<h1>Title</h1>" + "<p>Some text in a paragraph.</p>" * 200)
    for _ in range(20):
        parser.parse(source)
    child = psutil.Process(pid_of(parser, make_source))
    before = child.memory_info().rss
    for _ in range(200):
        parser.parse(source)
    assert child.memory_info().rss < before + 20 * 1024 * 1024


def test_a_tiny_document_costs_little(parser: IsolatedParser, make_source: MakeSource) -> None:
    source = make_source("a.txt", "tiny")
    parser.parse(source)
    times = []
    for _ in range(100):
        started = time.perf_counter()
        parser.parse(source)
        times.append(time.perf_counter() - started)
    assert sorted(times)[50] < 0.02


def test_parsing_text_imports_no_heavy_library() -> None:
    script = (
        "import sys; from rag_cluster.parsing.registry import ParserRegistry;"
        "ParserRegistry().parser_for('a.txt'); import rag_cluster.parsing.child;"
        "print([m for m in ('numpy','lxml','PIL','onnxruntime','pptx','docx','openpyxl','ray','pydantic')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
