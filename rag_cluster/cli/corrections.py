"""corrections: questions with the answers that are to be given from now on."""

from __future__ import annotations

from typing import Annotated

import typer

from rag_cluster.cli.options import Base, Cursor, Department, Json, SecurityLevel, Yes
from rag_cluster.cli.output import command, confirm, emit, fail, say, table
from rag_cluster.cli.receipts import show_receipt
from rag_cluster.cli.session import services
from rag_cluster.domain.access import LOCAL, stated_access
from rag_cluster.domain.documents import SourceKind
from rag_cluster.errors import NotFoundError

app = typer.Typer(help="Managed corrections: first for the agents that mount their source.", no_args_is_help=True)


@app.command("add")
@command
def add(
    question: Annotated[str, typer.Argument(help="As it is asked.")],
    answer: Annotated[str, typer.Argument(help="Markdown.")],
    knowledge_base: Base,
    agent: Annotated[
        list[str] | None, typer.Option(help="Agent that mounts the source from now on; may be repeated.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Name of its source, made when new. Default: corrections.")] = None,
    priority: Annotated[int | None, typer.Option(help="Of these mounts. Default: as it is, 0 when new.")] = None,
    acl: Annotated[list[str] | None, typer.Option(help="Group that may read it; may be repeated.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Everyone with the knowledge base may read it.")] = False,
    department: Department = None,
    security_level: SecurityLevel | None = None,
    as_json: Json = False,
) -> None:
    """Write a correction; the next query finds it. The same question again replaces its answer.

    Who may read it stays as it is unless something of --acl, --open, --department, --security-level is given.

    Example: `rag-cluster corrections add "What does storage cost?" "Nothing for five days." -k harbour --agent desk`
    """
    from rag_cluster.ingestion.corrections import CORRECTIONS_SOURCE, Correction

    if acl and open_:
        raise typer.BadParameter("give one of --acl and --open.")
    stated = bool(acl or open_ or department is not None or security_level is not None)
    groups = tuple(acl) if acl else (() if open_ else None)
    access = stated_access(groups, department, security_level or 0) if stated else None
    correction = Correction(question, answer, access)
    opened = services()
    base = opened.catalog.knowledge_base(knowledge_base)
    mounts = {opened.agents.find_agent(base.id, name).id: priority for name in agent or ()}
    receipt = opened.write_correction(base.id, correction, source or CORRECTIONS_SOURCE, mounts)
    if as_json:
        emit({"document_id": receipt.document_id, "outcome": receipt.outcome, "question": correction.heading})
    else:
        say(f"{'unchanged' if receipt.outcome == 'unchanged' else 'written'}: {receipt.document_id}")


@app.command("list")
@command
def list_(
    knowledge_base: Base,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 200,
    cursor: Cursor = None,
    as_json: Json = False,
) -> None:
    """List the corrections of a knowledge base.

    Example: `rag-cluster corrections list -k harbour`
    """
    from rag_cluster.serving.schemas.agents import CorrectionItem, CorrectionPage

    opened = services()
    base = opened.catalog.knowledge_base(knowledge_base)
    documents, next_cursor = opened.agents.corrections(base.id, LOCAL, cursor=cursor, limit=limit)
    items = [CorrectionItem.of(document) for document in documents]
    if as_json:
        emit(CorrectionPage(items=items, next_cursor=next_cursor).model_dump(mode="json"))
        return
    table(
        "Corrections",
        ("question", "version", "status", "id"),
        ((item.question, item.version, item.status, item.document_id) for item in items),
        next_cursor=next_cursor,
    )


@app.command("delete")
@command
def delete(
    document: Annotated[str, typer.Argument(help="Id of the correction.")], yes: Yes = False, as_json: Json = False
) -> None:
    """Take a correction back.

    Exit code 0: gone from every store. 3: invisible, but steps are still owed; any job carries them out.

    Example: `rag-cluster corrections delete 0f6c... --yes`
    """
    opened = services()
    found = opened.catalog.document(document, LOCAL)
    if opened.agents.source(found.source_id, LOCAL).kind is not SourceKind.MANAGED_CORRECTION:
        raise NotFoundError(f"no correction {document[:64]!r}")
    if not yes and not confirm(f"Delete {found.filename}?"):
        raise fail("Not deleted; --yes does not ask.", as_json=as_json, kind="aborted")
    show_receipt(found.filename, opened.delete_document(found.id), as_json=as_json)
