"""rag_cluster: Ray Data jobs ingest whole corpora, a Ray Serve application answers over them with citations."""

__version__ = "0.1.0"
