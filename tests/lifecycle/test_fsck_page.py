"""The page about fsck names every fault."""

from __future__ import annotations

import re
from pathlib import Path

from rag_cluster.domain.inventory import Fault

PAGE = Path(__file__).parents[2] / "docs" / "fsck.md"


def test_the_table_of_faults_is_the_enumeration() -> None:
    rows = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)} == {fault.value for fault in Fault}
