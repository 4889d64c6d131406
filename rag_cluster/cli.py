"""The `rag-cluster` command."""


def main() -> None:
    """Entry point."""
