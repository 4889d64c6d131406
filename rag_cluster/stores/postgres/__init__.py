"""The PostgreSQL stores: one module per port, one pool, Alembic migrations."""
