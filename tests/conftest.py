"""Fixtures live in tests/fixtures, one module for each kind of store; contract suites in tests/contracts."""

import pytest

pytest_plugins = [
    "tests.fixtures.milvus",
    "tests.fixtures.postgres",
    "tests.fixtures.s3",
    "tests.fixtures.ray",
    "tests.fixtures.embedding_endpoint",
    "tests.fixtures.models",
    "tests.fixtures.chat_endpoint",
    "tests.fixtures.vllm",
]

pytest.register_assert_rewrite("tests.contracts")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one way to write tests/parsing/golden; see tests/parsing/test_golden.py."""
    parser.addoption("--regenerate-golden", action="store_true", help="Write the golden files instead of comparing.")
