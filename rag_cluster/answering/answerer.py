"""From a question to a cited answer or a refusal. JSON and SSE share one preparation and one stream of events."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from rag_cluster.answering import prompts
from rag_cluster.answering.calibration import WORDS_ONLY, Calibration
from rag_cluster.answering.context import Context, CountTokens, as_read, build_context, estimate_tokens
from rag_cluster.answering.generation import deltas, started
from rag_cluster.answering.language import question_language
from rag_cluster.answering.outcomes import Prepared, facts, finished, mark_filter, meta, refusal
from rag_cluster.answering.records import Audited, AuditTrail
from rag_cluster.answering.refusal import assess
from rag_cluster.domain.access import Principal
from rag_cluster.domain.answers import (
    Answer,
    AnswerEvent,
    AnswerEventKind,
    ChatEvidence,
    GenerationRequest,
)
from rag_cluster.domain.deadlines import Deadline, within
from rag_cluster.domain.ports import Conversations, Generator
from rag_cluster.domain.retrieval import Explanation, Outcome, RetrievalOptions, RetrievalRun, Standing, Target
from rag_cluster.errors import (
    ConflictError,
    ContextOverflowError,
    InternalError,
    InvalidRequestError,
    RagClusterError,
)

log = logging.getLogger(__name__)

MAX_SHRINKS = 4
"""How often a context is made smaller for a generator that reads less."""
SHRINK_MARGIN = 0.9
"""Of what a generator says that it reads: its tokenizer counts other texts differently."""
MIN_CONTEXT_TOKENS = 32


class Retrieves(Protocol):
    """What answering needs of retrieval."""

    async def retrieve(
        self, principal: Principal, knowledge_base_id: str, query: str, options: RetrievalOptions | None = None
    ) -> RetrievalRun:
        """Evidence for a query."""
        ...


class Explains(Protocol):
    """What `Answerer.explain` needs of retrieval: `retrieval.explain.Explainer`."""

    async def explain(
        self,
        principal: Principal,
        knowledge_base_id: str,
        query: str,
        target: Target,
        options: RetrievalOptions | None = None,
        *,
        reader: Principal | None = None,
    ) -> tuple[Explanation, RetrievalRun]:
        """Where each stage left the target, and the run."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Settings values that answering needs."""

    context_tokens: int = 6000
    max_question_chars: int = 8000
    temperature: float = 0.2
    max_answer_tokens: int = 1024


class Answerer:
    """Composes retrieval, refusal, context, generator and citations; keeps messages and the audit trail."""

    def __init__(
        self,
        retriever: Retrieves,
        generator: Generator,
        conversations: Conversations,
        *,
        calibration: Calibration = WORDS_ONLY,
        limits: AnswerLimits | None = None,
        count_tokens: CountTokens = estimate_tokens,
        explainer: Explains | None = None,
    ) -> None:
        self._retriever = retriever
        self._generator = generator
        self._conversations = conversations
        self._calibration = calibration
        self._limits = limits or AnswerLimits()
        self._count_tokens = count_tokens
        self._explainer = explainer
        self._trail = AuditTrail(conversations)

    async def retrieve(
        self,
        principal: Principal,
        knowledge_base_id: str,
        query: str,
        options: RetrievalOptions | None = None,
        *,
        request_id: str = "",
        deadline: Deadline | None = None,
    ) -> RetrievalRun:
        """Evidence only, with its audit row."""
        options = options or RetrievalOptions()
        async with self._trail.audit(principal, knowledge_base_id, query, options, request_id, deadline) as audited:
            self._check(query)
            async with within(deadline):
                audited.run = await self._retriever.retrieve(principal, knowledge_base_id, query, options)
            audited.outcome = "retrieved"
            return audited.run

    async def retrieve_and_format(
        self,
        principal: Principal,
        knowledge_base_id: str,
        query: str,
        options: RetrievalOptions | None = None,
        *,
        max_context_length: int | None = None,
        include_metadata: bool = True,
        request_id: str = "",
        deadline: Deadline | None = None,
    ) -> str:
        """Evidence as one text for a language model of the caller's; "" when there is none.

        max_context_length: characters, at most; the last source that does not fit is left out. include_metadata:
        each source's number, document and place above its text; the document's name is kept back for an agent with
        hide_source_filename, here alone: the audit row has it.
        """
        run = await self.retrieve(
            principal, knowledge_base_id, query, options, request_id=request_id, deadline=deadline
        )
        return build_context(
            run.results,
            max_context_length if max_context_length is not None else sys.maxsize,
            count_tokens=len,
            hide_source_filename=run.hide_source_filename,
            include_metadata=include_metadata,
        ).text

    async def explain(
        self,
        principal: Principal,
        knowledge_base_id: str,
        query: str,
        target: Target,
        options: RetrievalOptions | None = None,
        *,
        reader: Principal | None = None,
        request_id: str = "",
        deadline: Deadline | None = None,
    ) -> tuple[Explanation, RetrievalRun]:
        """Why a chunk is among the results or not, up to the context's token budget, and the run. With an audit row.

        As `retrieval.explain.Explainer.explain`. ConflictError where this answerer has no explainer.
        """
        if self._explainer is None:
            raise ConflictError("Nothing explains retrieval here.")
        options = options or RetrievalOptions()
        async with self._trail.audit(principal, knowledge_base_id, query, options, request_id, deadline) as audited:
            self._check(query)
            async with within(deadline):
                explanation, run = await self._explainer.explain(
                    principal, knowledge_base_id, query, target, options, reader=reader
                )
            audited.run, audited.outcome = run, "explained"
            return self._budgeted(explanation, run), run

    def _budgeted(self, explanation: Explanation, run: RetrievalRun) -> Explanation:
        """With the last stage: whether it is in the context, which may hold a part of its result, as which source."""
        if explanation.result is None or explanation.lost_at:
            return explanation
        context = self._context(run)
        detail = f"{self._limits.context_tokens} tokens hold {len(context.sources)} of {len(run.results)} results"
        fits = False
        if explanation.result <= len(context.sources):
            source = context.sources[explanation.result - 1]
            whole, told = (
                as_read(text, source.result.filename, run.hide_source_filename)
                for text in (source.result.content, explanation.text)
            )
            fits = source.text == whole or told in source.text
            detail += "" if fits else "; of its result another part alone is in the context"
        standing = Standing(
            "budget",
            Outcome.PASSED if fits else Outcome.LOST,
            rank=explanation.result if fits else None,
            detail=detail,
        )
        return replace(explanation, standings=(*explanation.standings, standing))

    def _context(self, run: RetrievalRun, max_tokens: int | None = None) -> Context:
        return build_context(
            run.results,
            self._limits.context_tokens if max_tokens is None else max_tokens,
            count_tokens=self._count_tokens,
            hide_source_filename=run.hide_source_filename,
        )

    async def answer(
        self,
        principal: Principal,
        knowledge_base_id: str,
        question: str,
        options: RetrievalOptions | None = None,
        *,
        request_id: str = "",
        session_id: str | None = None,
        deadline: Deadline | None = None,
    ) -> Answer:
        """The whole answer. Raises what retrieval or the generator raised; DeadlineExceededError after `deadline`."""
        events = self._events(principal, knowledge_base_id, question, options, request_id, session_id, deadline)
        async with aclosing(events):
            async for event in events:
                if event.answer is not None:
                    return event.answer
        raise InternalError("The answer ended without a result.")

    async def stream(
        self,
        principal: Principal,
        knowledge_base_id: str,
        question: str,
        options: RetrievalOptions | None = None,
        *,
        request_id: str = "",
        session_id: str | None = None,
        deadline: Deadline | None = None,
    ) -> AsyncGenerator[AnswerEvent]:
        """meta, delta*, citation*, then exactly one of done | refuse | error. Failures become the error event."""
        events = self._events(principal, knowledge_base_id, question, options, request_id, session_id, deadline)
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        except Exception as error:  # becomes the error event: the response's status is already sent
            known = error if isinstance(error, RagClusterError) else InternalError("The answer failed.")
            if known is not error:
                log.exception("answer failed")
            yield AnswerEvent(
                AnswerEventKind.ERROR,
                {"error": {"code": known.code, "type": known.type, "message": known.message, "request_id": request_id}},
            )

    async def _events(
        self,
        principal: Principal,
        knowledge_base_id: str,
        question: str,
        options: RetrievalOptions | None,
        request_id: str,
        session_id: str | None,
        deadline: Deadline | None,
    ) -> AsyncGenerator[AnswerEvent]:
        options = options or RetrievalOptions()
        async with self._trail.audit(principal, knowledge_base_id, question, options, request_id, deadline) as audited:
            async with within(deadline):
                if session_id is not None:
                    await self._conversations.require_session(session_id, principal, knowledge_base_id)
                prepared = await self._prepare(principal, knowledge_base_id, question, options, audited)
            yield AnswerEvent(AnswerEventKind.META, meta(prepared))
            if prepared.request is None:
                answer = refusal(question, prepared)
            else:
                prepared, stream, first = await self._begin(prepared, prepared.request, deadline)
                cleaner = mark_filter(prepared)
                pieces: list[str] = []
                async with aclosing(deltas(stream, first, cleaner, deadline)) as cleaned:
                    async for delta in cleaned:
                        pieces.append(delta)
                        yield AnswerEvent(AnswerEventKind.DELTA, {"text": delta})
                answer = finished(question, "".join(pieces), prepared, cleaner)
                for citation in answer.citations:
                    yield AnswerEvent(AnswerEventKind.CITATION, {"citation": citation})
            audited.outcome = "refused" if answer.refused else "answered"
            audited.metadata.update(facts(answer, prepared))
            answer = await self._keep(principal, knowledge_base_id, answer, session_id, deadline)
            kind = AnswerEventKind.REFUSE if answer.refused else AnswerEventKind.DONE
            yield AnswerEvent(kind, {"reason": answer.refusal_reason} if answer.refused else {}, answer)

    def _check(self, question: str) -> None:
        if not question.strip():
            raise InvalidRequestError("The question is empty: ask something.")
        if len(question) > self._limits.max_question_chars:
            raise InvalidRequestError(
                f"The question has {len(question)} characters; at most {self._limits.max_question_chars} are taken."
            )

    async def _prepare(
        self,
        principal: Principal,
        knowledge_base_id: str,
        question: str,
        options: RetrievalOptions,
        audited: Audited,
    ) -> Prepared:
        """Retrieve, then refuse or build the generator's request."""
        self._check(question)
        run = await self._retriever.retrieve(principal, knowledge_base_id, question, options)
        audited.run = run
        assessment = assess(run, self._calibration)
        if assessment.reason:
            return Prepared(run, assessment)
        context = self._context(run)
        return Prepared(run, assessment, context, self._request(question, run, context))

    def _request(self, question: str, run: RetrievalRun, context: Context) -> GenerationRequest:
        language = question_language(question)
        return GenerationRequest(
            question=question,
            language=language,
            sources=context.sources,
            system_prompt=prompts.system_prompt(language),
            user_prompt=prompts.user_prompt(context.text, question, language),
            query_vector=run.query_vector,
            temperature=self._limits.temperature,
            max_tokens=self._limits.max_answer_tokens,
        )

    async def _begin(
        self, prepared: Prepared, request: GenerationRequest, deadline: Deadline | None
    ) -> tuple[Prepared, AsyncIterator[str], str | None]:
        """The generator's stream and its first delta, with as many sources as the generator can read."""
        for _ in range(MAX_SHRINKS):
            try:
                return prepared, *await started(self._generator, request, deadline)
            except ContextOverflowError as error:
                prepared, request = self._shrunk(prepared, request, error)
        return prepared, *await started(self._generator, request, deadline)

    def _shrunk(
        self, prepared: Prepared, request: GenerationRequest, error: ContextOverflowError
    ) -> tuple[Prepared, GenerationRequest]:
        """With less context, by what the generator says of its limit. Raises the error when nothing would be left."""
        context = self._count_tokens(prepared.context.text)
        budget = context // 2
        if error.tokens and error.limit:  # of the generator's own tokens, which ours are so many times as many as
            whole = self._count_tokens(request.system_prompt) + self._count_tokens(request.user_prompt)
            room = int(whole * error.limit / error.tokens * SHRINK_MARGIN) - (whole - context)
            budget = min(room, int(context * SHRINK_MARGIN))
        fewer = self._context(prepared.run, budget) if budget >= MIN_CONTEXT_TOKENS else Context((), "")
        if not fewer.sources:
            raise error
        given, found = len(fewer.sources), len(prepared.run.results)
        log.warning("the generator reads less than RAG_CONTEXT_TOKENS", extra={"reason": error.message})
        warning = f"the language model reads less than was found: {given} of {found} sources were given to it"
        request = self._request(request.question, prepared.run, fewer)
        return replace(prepared, context=fewer, request=request, warnings=(warning,)), request

    async def _keep(
        self,
        principal: Principal,
        knowledge_base_id: str,
        answer: Answer,
        session_id: str | None,
        deadline: Deadline | None,
    ) -> Answer:
        """Store question and answer with the evidence. What cannot be stored is logged: the answer still stands."""
        evidence = ChatEvidence(answer.citations, answer.results, answer.trace)
        try:
            async with within(deadline):
                asked = await self._conversations.add_message(
                    session_id, "user", answer.question, principal=principal, knowledge_base_id=knowledge_base_id
                )
                told = await self._conversations.add_message(
                    asked.session_id,
                    "assistant",
                    answer.text,
                    principal=principal,
                    knowledge_base_id=knowledge_base_id,
                    evidence=evidence,
                )
        except Exception as error:  # becomes a warning of the answer
            log.warning("the message was not stored", exc_info=True)
            reason = error.type if isinstance(error, RagClusterError) else type(error).__name__
            return replace(answer, warnings=(*answer.warnings, f"the message was not stored: {reason}"))
        return replace(answer, message_id=told.id, session_id=asked.session_id)
