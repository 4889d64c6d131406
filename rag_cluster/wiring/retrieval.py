"""The read path: evidence and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag_cluster.domain.ports import AsyncEmbedder, AsyncReranker, Generator
from rag_cluster.wiring.engines import EngineServices
from rag_cluster.wiring.stores import StoreServices

if TYPE_CHECKING:
    from rag_cluster.answering.answerer import Answerer
    from rag_cluster.answering.calibration import Calibration
    from rag_cluster.retrieval.retriever import Retriever


class RetrievalServices(StoreServices, EngineServices):
    """What answers questions."""

    def retriever(
        self, embedder: AsyncEmbedder, reranker: AsyncReranker | None = None, generator: Generator | None = None
    ) -> Retriever:
        """The read path up to evidence. reranker, generator: None takes the settings' engine, in this process."""
        from rag_cluster.retrieval.retriever import Retriever

        settings = self.settings
        return Retriever(
            self.evidence,
            self.index,
            embedder,
            reranker=reranker or self.async_reranker,
            rewriter=self.rewriter(generator or self.generator(embedder)),
            search=self.chunk_search,
            rewrite_seconds=settings.rewrite_timeout,
            rerank_seconds=settings.rerank_timeout,
            keyword_seconds=settings.keyword_timeout,
            metrics=self.metrics,
        )

    def answerer(
        self, embedder: AsyncEmbedder, reranker: AsyncReranker | None = None, generator: Generator | None = None
    ) -> Answerer:
        """The whole read path. reranker, generator: as in `retriever`."""
        from rag_cluster.answering.answerer import Answerer, AnswerLimits
        from rag_cluster.retrieval.explain import Explainer

        generator = generator or self.generator(embedder)  # one, which may rewrite too
        retriever = self.retriever(embedder, reranker, generator)
        return Answerer(
            retriever,
            generator,
            self.conversations,
            calibration=self.calibration,
            limits=AnswerLimits(
                context_tokens=self._context_tokens,
                max_question_chars=self.settings.max_question_chars,
                temperature=self.settings.temperature,
                max_answer_tokens=self.settings.max_answer_tokens,
            ),
            count_tokens=self.tokenizer.count,
            explainer=Explainer(retriever, self.evidence, self.index, self.chunk_search, self.index),
        )

    @property
    def calibration(self) -> Calibration:
        """When evidence suffices: what is known of the embedder, and what the settings say."""
        from rag_cluster.answering.calibration import calibration_for

        settings = self.settings
        return calibration_for(
            settings.embedder,
            rerank_threshold=settings.refusal_rerank_score,
            foreign_cosine=settings.refusal_foreign_cosine,
        )

    @property
    def _context_tokens(self) -> int:
        """What sources may take. A quarter of what the generator reads is for rules, question, and for tokenizers that
        count differently; what still does not fit is left out when the generator says so."""
        window, most = self.settings.generator_context_tokens, self.settings.context_tokens
        if not window:
            return most
        return min(most, (window - min(self.settings.max_answer_tokens, window // 4)) * 3 // 4)
