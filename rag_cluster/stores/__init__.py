"""Where things are kept: PostgreSQL, Milvus, objects and snapshots, and the embedded servers."""
