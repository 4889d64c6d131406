"""Blocks -> chunks: the registry, sentence boundaries and one module per strategy."""
