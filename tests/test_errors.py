"""The error tree: stable, documented, and whole after a journey between processes."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

from rag_cluster.errors import OverloadedError, RagClusterError, error_types

DOCS = Path(__file__).parents[1] / "docs" / "errors.md"


def test_the_table_in_the_docs_is_the_tree() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (\d+) \| (yes|no) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    tree = {
        (str(kind.code), name, str(kind.http_status), "no" if kind.permanent else "yes")
        for name, kind in error_types().items()
    }
    assert set(rows) == tree and len(rows) == len(tree)


def test_codes_and_types_are_unique_and_seed_codes_kept() -> None:
    kinds = error_types()
    assert len({kind.code for kind in kinds.values()}) == len(kinds)
    assert {kinds[name].code for name in ("unsupported_document_type", "document_too_large")} == {1002, 1003}
    assert kinds["internal_error"].code == 5000


def test_an_error_survives_the_way_to_another_process() -> None:
    for kind in error_types().values():
        found = pickle.loads(pickle.dumps(kind("why", retry_after=2.5)))
        assert (type(found), found.message, found.retry_after) == (kind, "why", 2.5)
    assert isinstance(OverloadedError("x"), RagClusterError)
