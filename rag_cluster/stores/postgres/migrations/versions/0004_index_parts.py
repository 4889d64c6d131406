"""Which parts each index holds, so that another one can be built beside the active one."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE index_parts (
    document_id uuid NOT NULL,
    version integer NOT NULL,
    part integer NOT NULL,
    index_id integer NOT NULL REFERENCES indexes ON DELETE CASCADE,
    PRIMARY KEY (document_id, version, part, index_id),
    FOREIGN KEY (document_id, version, part) REFERENCES document_parts ON DELETE CASCADE
);
-- Until now parts were written to the active index only; what others hold was not kept: they are built anew.
INSERT INTO index_parts (document_id, version, part, index_id)
    SELECT p.document_id, p.version, p.part, i.id FROM document_parts p, indexes i
    WHERE p.done_at IS NOT NULL AND i.state = 'active';
ALTER TABLE indexes DROP CONSTRAINT indexes_state_check;
ALTER TABLE indexes ADD CONSTRAINT indexes_state_check
    CHECK (state IN ('building', 'active', 'retired', 'dropping'));
"""


def upgrade() -> None:
    """Create the table from what is known."""
    op.execute(SCHEMA)


def downgrade() -> None:
    """Forget it; an index that was being dropped is retired again."""
    op.execute(
        "DROP TABLE index_parts;"
        "UPDATE indexes SET state = 'retired' WHERE state = 'dropping';"
        "ALTER TABLE indexes DROP CONSTRAINT indexes_state_check;"
        "ALTER TABLE indexes ADD CONSTRAINT indexes_state_check CHECK (state IN ('building', 'active', 'retired'))"
    )
