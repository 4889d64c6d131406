"""`RagCluster`: everything that a notebook does, on the embedded default or on a cluster, by the same calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from rag_cluster.client import http, queries
from rag_cluster.client.bulk import BulkRuns
from rag_cluster.client.catalog import CatalogCalls
from rag_cluster.client.ingest import Ingestion, frame_as_manifest, groups, is_frame, locations, patterns, records
from rag_cluster.client.jobs import Cluster, Job
from rag_cluster.client.progress import without_advice
from rag_cluster.client.reports import ReportView
from rag_cluster.client.secrets import settings_secrets
from rag_cluster.client.uploads import Uploads, UploadsView, files_as_uploads, texts_as_uploads
from rag_cluster.client.views import AnswersView, AnswerView, ExplainView, ParsedView, SearchView
from rag_cluster.errors import ConflictError, InvalidRequestError, NotFoundError
from rag_cluster.serving.schemas import KnowledgeBaseResponse
from rag_cluster.settings import Settings, get_settings
from rag_cluster.settings import ray_address as find_ray

if TYPE_CHECKING:
    import pandas as pd

    from rag_cluster.client.embedded import Embedded

UPLOAD_SECONDS = 3600.0


class RagCluster(CatalogCalls):
    """A cluster, or with no arguments the embedded default inside this process.

    url, api_key: of a running server, http://HOST:PORT. ray_address: of a Ray dashboard that takes jobs,
    http://HEAD:8265, or without a url of a Ray to join; default: the settings'. ray_token: that dashboard's, where it
    wants one; default: as `ray job submit` finds it. knowledge_base: name or id, for calls that name none. data_dir,
    settings: of the embedded default; default: the environment's settings, so that `RAG_POSTGRES_DSN` and the like name
    a cluster's stores. Works where an event loop runs, as in Jupyter; not meant for several threads at once.

    >>> with RagCluster(knowledge_base="handbook") as rag:
    ...     rag.ingest("./documents")
    ...     rag.ask("岸桥制动器的标准间隙是多少？")
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        ray_address: str | None = None,
        ray_token: str | None = None,
        knowledge_base: str | None = None,
        data_dir: str | Path | None = None,
        settings: Settings | None = None,
    ) -> None:
        if url is None and api_key is not None:
            raise InvalidRequestError("api_key is for a server: give its url.")
        if url is not None and (data_dir is not None or settings is not None):
            raise InvalidRequestError("data_dir and settings are of the embedded default, which a url replaces.")
        self.settings = settings or get_settings()
        given = {"data_dir": data_dir and Path(data_dir), "ray_address": find_ray(self.settings, ray_address)}
        self.settings = self.settings.model_copy(update={name: value for name, value in given.items() if value})
        self.knowledge_base = knowledge_base
        self._cluster = self._job_cluster(ray_token, api_key)
        self._embedded: Embedded | None = None
        if url is None:
            with without_advice():
                from rag_cluster.client.embedded import Embedded

            self._embedded = Embedded(self.settings)
            self._api = self._embedded.api
        else:
            self._api = http.connect(url, api_key)
        self._runs = BulkRuns(self._api, self._cluster, self._embedded)

    def _job_cluster(self, token: str | None, api_key: str | None) -> Cluster | None:
        address = self.settings.ray_address
        if not address.startswith(("http://", "https://")):
            return None  # a Ray that this process joins, or its own
        secrets = [*settings_secrets(self.settings), *([api_key] if api_key else [])]
        return Cluster(address, token=token, secrets=secrets)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        jobs = f", jobs at {self._cluster.address}" if self._cluster else ""
        return f"RagCluster({self._api.name}{jobs})"

    def close(self) -> None:
        """Close connections; of the embedded default stop what this client started (servers, Ray), nothing else."""
        (self._embedded or self._api).close()

    # -- documents in ------------------------------------------------------------------------------------------------

    def ingest(
        self,
        inputs: str | Path | Sequence[str | Path] | pd.DataFrame = (),
        *,
        knowledge_base: str | None = None,
        manifest: str | Path | Sequence[str | Path] = (),
        acl: str | Sequence[str] | None = None,
        department: str | None = None,
        security_level: int = 0,
        chunking: str | None = None,
        retry_failed: bool = False,
        verify_content: bool = False,
        include: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        reference: bool = False,
        sync: bool = False,
        ocr: str | None = None,
        key: str | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        progress: bool = True,
    ) -> ReportView:
        """Bring a knowledge base, created when new, up to date with files, folders, globs or s3:// prefixes.

        Here with a local Ray; with a `ray_address` as a job of that cluster, whose paths they then are. A DataFrame is
        a manifest: `uri`, and as far as given `acl`, `department`, `security_level`, `metadata`, `chunking`.
        acl: groups that may read, a list or "finance;audit"; []: everyone with the base; None: as the document has it,
        else the base's default.
        reference: originals stay where they lie; no copies are made.

        The same call again follows the job that is under way. With a `key`, a job that succeeded under it is not done
        again either. Failed documents are rows of the report. An interrupt ends a run here, which the next one goes on
        with; of a job it ends only the following: see `cancel`.
        """
        with contextlib.ExitStack() as lasting:
            manifests = locations(manifest)
            if is_frame(inputs):
                if self._cluster is not None:
                    raise InvalidRequestError(
                        "A job cannot read a DataFrame of this process: write it where the cluster reads, as "
                        "frame.to_parquet('s3://...'), and give that as manifest."
                    )
                manifests = (*manifests, lasting.enter_context(frame_as_manifest(inputs)))
                inputs = ()
            ingestion = Ingestion(
                self._base(knowledge_base),
                locations(inputs),
                manifests,
                acl=groups(acl),
                department=department,
                security_level=security_level,
                chunking=chunking,
                retry_failed=retry_failed,
                verify_content=verify_content,
                include=patterns(include),
                exclude=patterns(exclude),
                reference=reference,
                sync=sync,
                ocr=ocr,
            )
            return self._runs.ingest(ingestion, key, runtime_env, progress=progress)

    def submit(
        self,
        *arguments: str,
        key: str | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Job:
        """Submit any `rag-cluster` command as a job: `submit("fsck", "--repair", "--json")`. Idempotent as `ingest`.

        InvalidRequestError for arguments, runtime_env or metadata that would show a secret on Ray's dashboard.
        """
        if self._cluster is None:
            raise InvalidRequestError("A job needs a cluster: give RagCluster a ray_address, as http://HEAD:8265.")
        return self._cluster.submit(arguments, key=key, runtime_env=runtime_env, metadata=metadata)

    def add_texts(
        self,
        texts: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]] | pd.DataFrame,
        *,
        knowledge_base: str | None = None,
        acl: str | Sequence[str] | None = None,
        department: str | None = None,
        security_level: int = 0,
        chunking: str | None = None,
        timeout: float = UPLOAD_SECONDS,
    ) -> UploadsView:
        """Add texts as documents of their own and wait until they can be searched.

        Dictionaries and DataFrames have `text` and as far as given `uri`, `filename`, `metadata`, `acl`, `department`,
        `security_level`, `chunking`. A `filename` or `uri` that ends in .md is read as Markdown. The same text with the
        same attributes is added once; a changed text is another document.
        """
        defaults = {
            "acl": acl,
            "department": department,
            "security_level": security_level,
            "chunking": chunking,
        }
        uploads = texts_as_uploads(texts, defaults)
        return self._uploads(knowledge_base, timeout).send(uploads)

    def upload(
        self,
        files: str | Path | Sequence[str | Path],
        *,
        knowledge_base: str | None = None,
        acl: str | Sequence[str] | None = None,
        department: str | None = None,
        security_level: int = 0,
        metadata: Mapping[str, Any] | None = None,
        chunking: str | None = None,
        timeout: float = UPLOAD_SECONDS,
    ) -> UploadsView:
        """Send files and folders of this machine through the server and wait until they can be searched."""
        defaults = {
            "acl": acl,
            "department": department,
            "security_level": security_level,
            "metadata": metadata,
            "chunking": chunking,
        }
        return self._uploads(knowledge_base, timeout).send(files_as_uploads(locations(files), defaults))

    def _uploads(self, knowledge_base: str | None, timeout: float) -> Uploads:
        name = self._base(knowledge_base)
        path = f"/v1/knowledge-bases/{http.segment(name)}"
        try:
            base = self._api.get(path, KnowledgeBaseResponse)
        except NotFoundError:
            try:
                base = self.create_knowledge_base(name)
            except ConflictError:  # somebody else was faster
                base = self._api.get(path, KnowledgeBaseResponse)
        return Uploads(self._api, base.id, self._embedded.work if self._embedded else lambda: False, timeout)

    # -- answers out -------------------------------------------------------------------------------------------------

    def search(
        self, query: str, *, knowledge_base: str | None = None, **options: Unpack[queries.Options]
    ) -> SearchView:
        """Evidence for a query, best first, with its trace."""
        return queries.search(self._api, self._base(knowledge_base), query, options)

    def retrieve_and_format(
        self,
        query: str,
        *,
        max_context_length: int | None = None,
        include_metadata: bool = True,
        knowledge_base: str | None = None,
        **options: Unpack[queries.Options],
    ) -> str:
        """Evidence for a query as one text, for a language model of your own; "" where nothing was found.

        max_context_length: characters, at most. include_metadata: each source's number, document and place above it.
        """
        base = self._base(knowledge_base)
        return queries.context(self._api, base, query, max_context_length, include_metadata, options)

    def ask(
        self,
        question: str,
        *,
        knowledge_base: str | None = None,
        session_id: str | None = None,
        **options: Unpack[queries.Options],
    ) -> AnswerView:
        """An answer with its citations, or a refusal when the documents do not tell."""
        return queries.ask(self._api, self._base(knowledge_base), question, session_id, options)

    def ask_all(
        self,
        questions: Iterable[str] | pd.DataFrame,
        *,
        knowledge_base: str | None = None,
        **options: Unpack[queries.Options],
    ) -> AnswersView:
        """Answers to questions, or to a DataFrame's column `question`, in their order."""
        asked = [row["question"] for row in records(questions)] if is_frame(questions) else list(questions)
        return AnswersView([self.ask(question, knowledge_base=knowledge_base, **options) for question in asked])

    def explain(
        self,
        query: str,
        document_id: str | None = None,
        *,
        chunk_id: str | None = None,
        text: str | None = None,
        knowledge_base: str | None = None,
        **options: Unpack[queries.Options],
    ) -> ExplainView:
        """Where every stage of a query left a document's best chunk, a chunk, or the chunk that holds a text."""
        return queries.explain(self._api, self._base(knowledge_base), query, document_id, chunk_id, text, options)

    def parse(self, file: str | Path, *, ocr: str | None = None) -> ParsedView:
        """What the parser sees in a file of this machine; needs no store. ocr: auto, off or force."""
        from rag_cluster.parsing.output import local_source
        from rag_cluster.wiring import isolated_parser

        path = Path(file).expanduser()
        if not path.is_file():
            raise NotFoundError(f"There is no file {path}.")
        source = local_source(path)
        settings = self.settings if ocr is None else self.settings.model_copy(update={"ocr": ocr})
        with isolated_parser(settings) as parser:
            return ParsedView(parser.parse(source), source)

    def _base(self, given: str | None) -> str:
        name = given or self.knowledge_base
        if not name:
            raise InvalidRequestError(
                "Name a knowledge base here or for the whole client: RagCluster(knowledge_base=...)."
            )
        return name
