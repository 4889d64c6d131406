"""What was done to which version, by whom, and what is left."""

from __future__ import annotations

from rag_cluster.stores.postgres.claims import LedgerClaims
from rag_cluster.stores.postgres.completion import LedgerCompletion
from rag_cluster.stores.postgres.parts import LedgerParts
from rag_cluster.stores.postgres.planning import LedgerPlanning
from rag_cluster.stores.postgres.runs import LedgerRuns


class PostgresLedger(LedgerPlanning, LedgerClaims, LedgerParts, LedgerCompletion, LedgerRuns):
    """The `Ledger` port: PostgresLedger(database)."""
