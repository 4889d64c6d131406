"""Damaged files of every format end in blocks or in one of the named errors, within the limits, and hurt nobody."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_cluster.domain.blocks import DocumentSource
from rag_cluster.errors import DocumentError
from rag_cluster.parsing.isolation import IsolatedParser
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.ocr import OcrMode
from tests.parsing.fuzzing import SEEDS, mutated

FULL = os.environ.get("RAG_FULL_COUNTS") == "1"
COUNT = 2000 if FULL else 200
LIMITS = ParseLimits(timeout=10.0, memory_bytes=1 << 30, max_expanded_bytes=1 << 26, max_image_pixels=4_000_000)
PICTURES = dict.fromkeys((".png", ".jpg", ".tiff", ".webp"), "tests.parsing.fuzzing:PictureParser")


@pytest.fixture
def parser() -> Iterator[IsolatedParser]:
    with IsolatedParser(LIMITS, ocr=OcrMode.OFF, parsers=PICTURES) as made:
        yield made


@pytest.mark.parametrize("form", SEEDS)
def test_mutated_files_end_in_blocks_or_named_errors(
    form: str, parser: IsolatedParser, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seeds = SEEDS[form]()
    outcomes: Counter[str] = Counter()
    failures = []
    for turn in range(COUNT):
        rng = random.Random(f"{form} {turn}")  # every turn can be repeated alone
        path = tmp_path / f"{turn}.{form}"
        path.write_bytes(mutated(seeds, rng))
        started = time.monotonic()
        caplog.clear()
        try:
            parsed = parser.parse(DocumentSource("doc", 1, path.name, str(path)))
            outcomes["blocks"] += 1
            assert parsed.blocks
        except DocumentError as error:
            outcomes[error.type] += 1
        assert time.monotonic() - started < 2 * LIMITS.timeout + 30
        # What no parser meant to raise is caught by the child, and still a fault of the parser.
        unexpected = [record.trace for record in caplog.records if getattr(record, "trace", "")]  # type: ignore[attr-defined]
        if unexpected:
            failures.append(f"turn {turn}: {unexpected[0]}")
        path.unlink()
    print(form, dict(outcomes))
    assert not failures, f"{len(failures)} unexpected errors\n" + "\n".join(failures[:5])
    assert outcomes["blocks"] >= COUNT // 50, outcomes
    assert outcomes["parse_crash"] + outcomes["parse_timeout"] <= COUNT // 50, outcomes


@pytest.mark.parametrize("form", SEEDS)
def test_the_seeds_themselves_can_be_read(form: str, parser: IsolatedParser, tmp_path: Path) -> None:
    for number, seed in enumerate(SEEDS[form]()):
        path = tmp_path / f"{number}.{form}"
        path.write_bytes(seed)
        try:
            assert parser.parse(DocumentSource("doc", 1, path.name, str(path))).blocks
        except DocumentError as error:
            assert error.type == "encrypted_document", error
