"""The first schema: design section 4, seeds 000-004."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE knowledge_bases (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    description text NOT NULL DEFAULT '',
    default_acl text[],                         -- NULL: closed; '{}': everyone to whom the knowledge base is granted
    deleted_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX knowledge_bases_by_name ON knowledge_bases (name) WHERE deleted_at IS NULL;

CREATE TABLE sources (
    id uuid PRIMARY KEY,
    knowledge_base_id uuid NOT NULL REFERENCES knowledge_bases ON DELETE CASCADE,
    kind text NOT NULL CHECK (kind IN ('upload', 'bulk', 'managed_correction')),
    name text NOT NULL,
    enabled boolean NOT NULL DEFAULT true,
    priority integer NOT NULL DEFAULT 0,
    default_chunking_strategy text,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (knowledge_base_id, kind, name)
);

CREATE TABLE agents (
    id uuid PRIMARY KEY,
    knowledge_base_id uuid NOT NULL REFERENCES knowledge_bases ON DELETE CASCADE,
    name text NOT NULL,
    hide_source_filename boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (knowledge_base_id, name)
);

CREATE TABLE source_mounts (
    agent_id uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    source_id uuid NOT NULL REFERENCES sources ON DELETE CASCADE,
    priority integer NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, source_id)
);

-- Each distinct (level, acl, department) of a knowledge base, interned: Milvus filters on this one scalar, and a query
-- asks for the keys of its own knowledge base only. Rows never change and never go before their knowledge base.
-- acl NULL means "the knowledge base's default", resolved when a principal asks, so that changing a default is one row.
CREATE TABLE access_keys (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    knowledge_base_id uuid NOT NULL REFERENCES knowledge_bases ON DELETE CASCADE,
    security_level smallint NOT NULL,
    acl text[],
    department text,
    UNIQUE NULLS NOT DISTINCT (knowledge_base_id, security_level, acl, department)
);

CREATE TABLE documents (
    id uuid PRIMARY KEY,
    knowledge_base_id uuid NOT NULL REFERENCES knowledge_bases ON DELETE CASCADE,
    source_id uuid NOT NULL REFERENCES sources,
    uri text NOT NULL,
    filename text NOT NULL,
    mime_type text NOT NULL DEFAULT '',
    access_key bigint NOT NULL REFERENCES access_keys,  -- acl, department and security_level stand there
    metadata jsonb NOT NULL DEFAULT '{}',
    attributes_at timestamptz NOT NULL DEFAULT now(),   -- when access_key or metadata last changed
    published_version integer,
    next_version integer NOT NULL DEFAULT 1,    -- never goes back, not even after a delete
    deleted_at timestamptz,                     -- tombstone; the row itself stays for next_version
    purged_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX documents_by_base ON documents (knowledge_base_id, created_at, id);
CREATE INDEX documents_visible ON documents (knowledge_base_id, access_key, source_id, id)
    WHERE published_version IS NOT NULL AND deleted_at IS NULL;

CREATE SEQUENCE claim_tokens;

CREATE TABLE document_versions (
    document_id uuid NOT NULL REFERENCES documents ON DELETE CASCADE,
    version integer NOT NULL,
    status text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'PARSING', 'CHUNKING', 'EMBEDDING', 'INDEXING', 'READY', 'FAILED')),
    sha256 text,
    size bigint NOT NULL DEFAULT 0,
    etag text NOT NULL DEFAULT '',
    content_fingerprint text NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    error_stage text,
    error_type text,
    error_message text,
    error_permanent boolean NOT NULL DEFAULT false,
    claim_owner text,
    claim_token bigint NOT NULL DEFAULT 0,
    claim_until timestamptz,
    parts_total integer,                        -- set with the snapshot; after that nobody re-parses this version
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (document_id, version)
);
CREATE INDEX versions_by_claim ON document_versions (claim_owner) WHERE claim_owner IS NOT NULL;
CREATE INDEX versions_by_sha256 ON document_versions (sha256);

CREATE TABLE document_parts (
    document_id uuid NOT NULL,
    version integer NOT NULL,
    part integer NOT NULL,
    chunk_start integer NOT NULL,
    chunk_end integer NOT NULL,
    done_at timestamptz,
    PRIMARY KEY (document_id, version, part),
    FOREIGN KEY (document_id, version) REFERENCES document_versions ON DELETE CASCADE
);

CREATE TABLE parents (
    id uuid PRIMARY KEY,
    document_id uuid NOT NULL REFERENCES documents ON DELETE CASCADE,
    version integer NOT NULL,
    index integer NOT NULL,
    text text NOT NULL,
    token_count integer NOT NULL DEFAULT 0,
    locator jsonb NOT NULL DEFAULT '{}',
    metadata jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX parents_by_version ON parents (document_id, version);

CREATE TABLE chunks (
    id uuid PRIMARY KEY,
    knowledge_base_id uuid NOT NULL,
    document_id uuid NOT NULL REFERENCES documents ON DELETE CASCADE,
    version integer NOT NULL,
    index integer NOT NULL,
    parent_id uuid,
    content text NOT NULL,
    prefix_length integer NOT NULL DEFAULT 0,
    token_count integer NOT NULL DEFAULT 0,
    locator jsonb NOT NULL DEFAULT '{}',
    start_offset integer NOT NULL DEFAULT -1,
    end_offset integer NOT NULL DEFAULT -1,
    block_ids uuid[] NOT NULL DEFAULT '{}',
    content_types text[] NOT NULL DEFAULT '{}',
    asset_ids uuid[] NOT NULL DEFAULT '{}',
    chunking_strategy text NOT NULL DEFAULT '',
    metadata jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX chunks_by_version ON chunks (document_id, version, index);

CREATE TABLE document_assets (
    id uuid NOT NULL,
    document_id uuid NOT NULL,
    version integer NOT NULL,
    object_key text NOT NULL,
    media_type text NOT NULL,
    sha256 text NOT NULL,
    size bigint NOT NULL,
    width integer,
    height integer,
    caption text NOT NULL DEFAULT '',
    locator jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (id, version),
    FOREIGN KEY (document_id, version) REFERENCES document_versions ON DELETE CASCADE
);
CREATE INDEX assets_by_document ON document_assets (document_id, version);

CREATE TABLE ingestion_jobs (
    id uuid PRIMARY KEY,
    document_id uuid NOT NULL,
    version integer NOT NULL,
    knowledge_base_id uuid NOT NULL REFERENCES knowledge_bases ON DELETE CASCADE,
    status text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED')),
    attempts integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 4,
    available_at timestamptz NOT NULL DEFAULT now(),
    worker_id text,
    claim_token bigint NOT NULL DEFAULT 0,      -- of the version's claim: fences a worker that lost the job
    locked_until timestamptz,
    stage text NOT NULL DEFAULT '',
    percent smallint NOT NULL DEFAULT 0,
    idempotency_key text,
    request_digest text NOT NULL DEFAULT '',    -- the same key with another request is a conflict
    error_type text,
    error_message text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (document_id, version) REFERENCES document_versions ON DELETE CASCADE,
    UNIQUE (knowledge_base_id, idempotency_key)
);
CREATE INDEX jobs_by_document ON ingestion_jobs (document_id);
CREATE INDEX jobs_due ON ingestion_jobs (available_at) WHERE status IN ('PENDING', 'RUNNING');

CREATE TABLE ingestion_runs (
    id uuid PRIMARY KEY,
    knowledge_base_id uuid NOT NULL REFERENCES knowledge_bases ON DELETE CASCADE,
    status text NOT NULL DEFAULT 'RUNNING' CHECK (status IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
    inputs text[] NOT NULL DEFAULT '{}',
    options jsonb NOT NULL DEFAULT '{}',
    counts jsonb NOT NULL DEFAULT '{}',
    error_message text,
    started_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz
);
CREATE INDEX runs_by_start ON ingestion_runs (started_at, id);

-- What a person asks for later: only inputs that did not simply become READY or stay unchanged.
CREATE TABLE ingestion_run_receipts (
    run_id uuid NOT NULL REFERENCES ingestion_runs ON DELETE CASCADE,
    uri text NOT NULL,
    document_id uuid,
    outcome text NOT NULL,
    stage text NOT NULL DEFAULT '',
    error_type text,
    message text NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, uri)
);

CREATE TABLE indexes (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    collection text NOT NULL UNIQUE,
    embedder_fingerprint text NOT NULL UNIQUE,
    dimension integer NOT NULL,
    state text NOT NULL CHECK (state IN ('building', 'active', 'retired')),
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX one_active_index ON indexes (state) WHERE state = 'active';

CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    document_id uuid NOT NULL,
    knowledge_base_id uuid NOT NULL,
    payload jsonb NOT NULL DEFAULT '{}',
    attempts integer NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL DEFAULT now(),
    error_message text,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX outbox_due ON outbox (available_at, id);
CREATE INDEX outbox_by_document ON outbox (document_id);

CREATE TABLE chat_sessions (
    id uuid PRIMARY KEY,
    knowledge_base_id uuid NOT NULL REFERENCES knowledge_bases ON DELETE CASCADE,
    principal text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE chat_messages (
    id uuid PRIMARY KEY,
    session_id uuid NOT NULL REFERENCES chat_sessions ON DELETE CASCADE,
    role text NOT NULL CHECK (role IN ('user', 'assistant')),
    content text NOT NULL,
    evidence jsonb,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX messages_by_session ON chat_messages (session_id, created_at);

CREATE TABLE retrieval_records (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id text NOT NULL,
    principal text NOT NULL,
    knowledge_base_id uuid NOT NULL,
    query text NOT NULL,
    options jsonb NOT NULL DEFAULT '{}',
    trace jsonb NOT NULL DEFAULT '{}',
    results jsonb NOT NULL DEFAULT '[]',
    outcome text NOT NULL DEFAULT '',
    milliseconds double precision NOT NULL DEFAULT 0,
    metadata jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX records_by_request ON retrieval_records (request_id);

CREATE TABLE feedback (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id uuid NOT NULL REFERENCES chat_messages ON DELETE CASCADE,
    principal text NOT NULL,
    rating smallint NOT NULL CHECK (rating IN (-1, 1)),
    comment text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_keys (
    id uuid PRIMARY KEY,
    name text NOT NULL UNIQUE,
    secret_sha256 text NOT NULL UNIQUE,
    knowledge_bases uuid[],                     -- NULL: all
    groups text[] NOT NULL DEFAULT '{}',
    department text,
    security_level smallint NOT NULL DEFAULT 0,
    unrestricted boolean NOT NULL DEFAULT false,
    revoked_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now()
);
"""


def upgrade() -> None:
    """Create every table."""
    op.execute(SCHEMA)


def downgrade() -> None:
    """There is nothing before the first schema."""
    raise RuntimeError("0001 is the first schema; drop the database instead")
