"""delete: documents, one source, or a whole knowledge base, as a job that any machine of the cluster can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rag_cluster.cli.options import Json, Yes
from rag_cluster.cli.output import command, confirm, fail
from rag_cluster.cli.receipts import show_receipts
from rag_cluster.cli.session import services

if TYPE_CHECKING:
    from collections.abc import Callable

    from rag_cluster.domain.documents import DeleteReceipt
    from rag_cluster.wiring import Services


@command
def delete(
    documents: Annotated[list[str] | None, typer.Argument(help="Document ids.")] = None,
    knowledge_base: Annotated[str | None, typer.Option("--knowledge-base", "-k", help="All of this one.")] = None,
    source: Annotated[str | None, typer.Option(help="Only this source of the knowledge base, by name or id.")] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete documents, a source, or a knowledge base everywhere, and tell what was verified gone.

    Exit code 0: gone from every store. 3: invisible, but steps are still owed; any job carries them out.

    Example: `rag-cluster delete -k harbour --source bulk --yes`
    """
    if bool(documents) == bool(knowledge_base) or (source and not knowledge_base):
        message = "Give document ids, or --knowledge-base with or without --source."
        raise fail(message, as_json=as_json, kind="invalid_request", code=2)
    opened = services()
    what, facts, carry_out = _chosen(opened, documents or [], knowledge_base or "", source)
    if not yes and not confirm(f"Delete {what}?"):
        raise fail("Not deleted; --yes does not ask.", as_json=as_json, kind="aborted")
    opened.drain_outbox()
    receipts = carry_out()
    opened.drain_outbox()
    show_receipts(what, receipts, facts, as_json=as_json)


def _chosen(
    opened: Services, documents: list[str], knowledge_base: str, source: str | None
) -> tuple[str, dict[str, Any], Callable[[], list[DeleteReceipt]]]:
    """(what is to go, in words; its ids; the call that deletes it). NotFoundError before anything is deleted."""
    from rag_cluster.domain.access import LOCAL

    if documents:
        for document_id in documents:
            opened.catalog.document(document_id, LOCAL)
        what = f"{len(documents)} documents"
        return what, {}, lambda: [opened.delete_document(document_id) for document_id in documents]
    base = opened.catalog.knowledge_base(knowledge_base)
    if source is None:
        facts = {"knowledge_base_id": base.id}
        return f"{base.name} and all its documents", facts, lambda: opened.delete_knowledge_base(base.id)
    found = opened.catalog.source(base.id, source)
    facts = {"knowledge_base_id": base.id, "source_id": found.id}
    what = f"the documents of source {found.name} in {base.name}"
    return what, facts, lambda: opened.delete_source(found)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(delete)
