"""Notebook client."""
