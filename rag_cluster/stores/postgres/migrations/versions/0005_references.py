"""Originals that were not copied: they lie where they were listed."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Until now every original was copied."""
    op.execute("ALTER TABLE document_versions ADD COLUMN referenced boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    """Drop it. What was only referenced is lost to this program: it is ingested again."""
    op.execute("ALTER TABLE document_versions DROP COLUMN referenced")
