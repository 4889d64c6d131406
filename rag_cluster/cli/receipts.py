"""What a delete verified, for people and programs. Exit code 3: done as far as it went, steps are still owed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from rag_cluster.cli.output import emit, err, say, table
from rag_cluster.domain.documents import DeleteReceipt

STEPS_OWED = 3
"""Exit code of a delete whose documents are invisible, but not gone from every store yet."""
SHOWN = 50


def show_receipt(filename: str, receipt: DeleteReceipt, *, as_json: bool) -> None:
    """One document's receipt, store by store."""
    from rag_cluster.serving.schemas import DeleteResponse

    if as_json:
        emit(DeleteResponse.of(receipt).model_dump(mode="json"))
    else:
        table(f"Deleted {filename}", ("store", "state"), receipt.stores.items())
    _exit([receipt] if receipt.pending else [])


def show_receipts(what: str, receipts: Sequence[DeleteReceipt], facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Receipts of many documents: counts, and those with steps still owed in full."""
    from rag_cluster.serving.schemas import DeleteResponse

    pending = [receipt for receipt in receipts if receipt.pending]
    if as_json:
        owed = [DeleteResponse.of(receipt).model_dump(mode="json") for receipt in pending]
        emit({**facts, "documents": len(receipts), "pending": len(pending), "owed": owed})
    else:
        say(f"deleted {what}: {len(receipts)} documents, {len(pending)} with steps still owed")
        if pending:
            table(
                "Steps still owed" + (f", the first {SHOWN}" if len(pending) > SHOWN else ""),
                ("id", "stores"),
                (
                    (r.document_id, ", ".join(f"{name}: {state}" for name, state in r.stores.items()))
                    for r in pending[:SHOWN]
                ),
            )
    _exit(pending)


def _exit(pending: Sequence[DeleteReceipt]) -> None:
    if pending:
        err.print(
            "What was deleted is invisible, but not gone from every store yet. The next job carries out what is owed, "
            "so does `rag-cluster fsck --repair`.",
            style="yellow",
            soft_wrap=True,
        )
        raise typer.Exit(STEPS_OWED)
