"""Alembic migrations; `rag_cluster.stores.postgres.migration.migrate` runs them."""
