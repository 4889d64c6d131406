"""The report of a run, kept with it: slowest documents, failures by type, and which stages were at work when."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Runs of before have their counts and receipts only."""
    op.execute("ALTER TABLE ingestion_runs ADD COLUMN report jsonb")


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE ingestion_runs DROP COLUMN report")
