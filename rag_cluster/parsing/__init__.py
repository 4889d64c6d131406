"""Bytes -> blocks: detection, one module or package per format, OCR, the isolated child and its limits."""
