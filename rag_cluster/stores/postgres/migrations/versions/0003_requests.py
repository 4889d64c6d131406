"""What a person asks of work: a chunking strategy for an upload, the end of a run."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SCHEMA = """
ALTER TABLE ingestion_jobs ADD COLUMN chunking_strategy text;
ALTER TABLE ingestion_runs ADD COLUMN cancel_requested_at timestamptz;
"""


def upgrade() -> None:
    """Add the columns."""
    op.execute(SCHEMA)


def downgrade() -> None:
    """Drop them."""
    op.execute(
        "ALTER TABLE ingestion_jobs DROP COLUMN chunking_strategy;"
        "ALTER TABLE ingestion_runs DROP COLUMN cancel_requested_at"
    )
