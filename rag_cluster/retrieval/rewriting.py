"""Query rewriting: at most one more variant of the question; whatever goes wrong, the original goes on alone."""

from __future__ import annotations

import asyncio
import re

from rag_cluster.domain.deadlines import share
from rag_cluster.domain.ports import QueryRewriter
from rag_cluster.retrieval.trace import TraceRecorder

MAX_CHARS = 1000
"""Of a variant. A model that writes more has not rewritten a question."""
_REASONING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


async def variants(
    rewriter: QueryRewriter | None, query: str, trace: TraceRecorder, *, seconds: float
) -> tuple[str, ...]:
    """(query,) or (query, rewritten). Never raises but on cancellation: a failure is a degradation of the trace."""
    if rewriter is None:
        trace.note("rewrite", "no rewriter configured")
        return (query,)
    with trace.stage("rewrite") as counts:
        seconds = share(seconds)
        try:
            async with asyncio.timeout(seconds):
                written = await rewriter.rewrite(query)
        except TimeoutError:
            trace.degrade("rewrite", f"no answer within {seconds:.3g} s")
            written = None
        except Exception as error:  # becomes a trace entry
            trace.degrade("rewrite", error)
            written = None
        rewritten = _cleaned(written or "")
        if len(rewritten) > MAX_CHARS:
            trace.degrade("rewrite", f"the rewriter wrote {len(rewritten)} characters")
            rewritten = ""
        found = (query, rewritten) if rewritten and rewritten.casefold() != _cleaned(query).casefold() else (query,)
        counts["variants"] = len(found)
    return found


def _cleaned(text: str) -> str:
    """One line, without a model's spoken thoughts and the quotation marks that it likes to put around its answer."""
    line = " ".join(_REASONING.sub(" ", text).replace("\x00", " ").split())
    for opening, closing in ('""', "''", "“”", "「」", "``"):
        if len(line) > 2 and line[0] == opening and line[-1] == closing:
            line = line[1:-1].strip()
    return line
