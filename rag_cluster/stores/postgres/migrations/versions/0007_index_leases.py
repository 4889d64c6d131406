"""Which job fills an index now: one at a time, for as long as it gives signs of life."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SCHEMA = """
-- A table of its own: publishing and switching lock the rows of indexes.
CREATE TABLE index_leases (
    index_id integer PRIMARY KEY REFERENCES indexes ON DELETE CASCADE,
    owner text NOT NULL,
    held_until timestamptz NOT NULL
);
"""


def upgrade() -> None:
    """Create the table."""
    op.execute(SCHEMA)


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP TABLE index_leases")
