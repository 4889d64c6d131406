"""rag_cluster: Ray Data jobs that ingest whole corpora, a Ray Serve application that answers over them with citations."""

__version__ = "0.1.0"
