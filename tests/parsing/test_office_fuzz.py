"""Damaged office files end in blocks or in one of the named errors, never in anything else."""

from __future__ import annotations

import io
import random
import re
import zipfile
from pathlib import Path

import pytest

from rag_cluster.domain.blocks import DocumentSource
from rag_cluster.errors import DocumentError
from rag_cluster.parsing.docx import DocxParser
from rag_cluster.parsing.pptx import PptxParser
from rag_cluster.parsing.xlsx import XlsxParser

SAMPLES = Path(__file__).parents[2] / "rag_cluster" / "samples"
PARSERS = {".docx": DocxParser, ".xlsx": XlsxParser, ".pptx": PptxParser}
VALUES = (b"", b"-1", b"x", b"99999999999999", b"1.5", b"0", b"NaN", b"A0", b"true", "²".encode(), "中".encode())
TURNS = 60


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One damage: flipped bytes, a cut, attributes rewritten, elements dropped or doubled, a part gone."""
    kind = rng.randrange(5)
    if kind == 0:
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 20)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        return bytes(damaged)
    if kind == 1:
        return data[: rng.randrange(len(data))]
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        names = [name for name in old.namelist() if name.endswith((".xml", ".rels"))]
        hit = set(rng.sample(names, min(len(names), 3)))
        for name in old.namelist():
            content = old.read(name)
            if name not in hit:
                new.writestr(name, content)
            elif kind == 2:
                new.writestr(name, _rewritten(content, rng, rb'="([^"]*)"', 1))
            elif kind == 3:
                new.writestr(name, _rewritten(content, rng, rb"<\w+:?\w+[^<>]*/>", 0))
    return stream.getvalue()


def _rewritten(content: bytes, rng: random.Random, pattern: bytes, group: int) -> bytes:
    found = list(re.finditer(pattern, content))
    for match in sorted(rng.sample(found, min(len(found), 20)), key=lambda m: -m.start()):
        new = rng.choice(VALUES) if group else rng.choice((b"", match[0] * 3))
        content = content[: match.start(group)] + new + content[match.end(group) :]
    return content


@pytest.mark.parametrize("suffix", sorted(PARSERS))
def test_mutated_files_end_in_blocks_or_named_errors(suffix, tmp_path):
    originals = [path.read_bytes() for path in sorted(SAMPLES.glob(f"*{suffix}"))]
    assert originals
    rng = random.Random(f"office{suffix}")
    for turn in range(TURNS):
        path = tmp_path / f"{turn}{suffix}"
        path.write_bytes(mutated(rng.choice(originals), rng))
        try:
            parsed = PARSERS[suffix]().parse(DocumentSource("doc", 1, path.name, str(path)))
        except DocumentError:
            continue
        assert parsed.blocks
