"""What fsck found lost for good, and an index for walking a knowledge base's documents by id."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE losses (
    document_id uuid NOT NULL,
    version integer NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    message text NOT NULL DEFAULT '',
    noted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (document_id, version, kind, subject),
    FOREIGN KEY (document_id, version) REFERENCES document_versions ON DELETE CASCADE
);
CREATE INDEX documents_by_base_and_id ON documents (knowledge_base_id, id);
"""


def upgrade() -> None:
    """Create the table and the index."""
    op.execute(SCHEMA)


def downgrade() -> None:
    """Drop them."""
    op.execute("DROP INDEX documents_by_base_and_id; DROP TABLE losses")
