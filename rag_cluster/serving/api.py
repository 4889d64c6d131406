"""The FastAPI application: routes, middleware and error handlers around one Backend. No Ray Serve here."""

from __future__ import annotations

from functools import partial

from fastapi import Depends, FastAPI

import rag_cluster
from rag_cluster.serving import error_responses
from rag_cluster.serving.backend import Backend
from rag_cluster.serving.middleware import BodyLimit, RequestContext
from rag_cluster.serving.parameters import check_parameters
from rag_cluster.serving.routes import agents, corrections, documents, knowledge_bases, operations, query, sources
from rag_cluster.serving.schemas import ErrorResponse


def create_api(backend: Backend, *, answers_with_id: bool = True) -> FastAPI:
    """The ASGI application. Interactive docs at /docs, schema at /openapi.json.

    answers_with_id: False where somebody in front, as Serve's proxy does, puts X-Request-ID on every response.
    """
    app = FastAPI(
        title="rag_cluster",
        version=rag_cluster.__version__,
        summary="Answers over your documents, with citations that hold.",
        dependencies=[Depends(check_parameters)],
        responses={status: {"model": ErrorResponse} for status in ("4XX", "5XX")},
    )
    app.state.backend = backend
    for module in (knowledge_bases, documents, sources, agents, corrections, operations, query):
        app.include_router(module.router)
    error_responses.install(app)
    # Added last is outermost.
    settings = backend.settings
    app.add_middleware(
        BodyLimit,
        upload_limit=settings.max_file_bytes,
        seconds=settings.request_timeout,
        admit_upload=partial(documents.admit_upload, services=backend),
    )
    app.add_middleware(RequestContext, answers_with_id=answers_with_id)
    return app
