from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument

MakeSource = Callable[[str, bytes | str], DocumentSource]


@pytest.fixture
def make_source(tmp_path: Path) -> MakeSource:
    """A DocumentSource for given bytes under a given name."""

    def make(name: str, content: bytes | str) -> DocumentSource:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return DocumentSource("document", 1, name, str(path), size=path.stat().st_size)

    return make


@pytest.fixture
def parse(make_source: MakeSource) -> Callable[..., ParsedDocument]:
    """Parse given bytes with the registry's parser for the name, in this process."""
    from rag_cluster.parsing.registry import ParserRegistry

    def run(name: str, content: bytes | str, **options: Any) -> ParsedDocument:
        return ParserRegistry(**options).parser_for(name).parse(make_source(name, content))

    return run
