"""Fixtures live in tests/fixtures, one module for each kind of store; contract suites in tests/contracts."""

import pytest

pytest_plugins = [
    "tests.fixtures.milvus",
    "tests.fixtures.postgres",
    "tests.fixtures.s3",
    "tests.fixtures.ray",
]

pytest.register_assert_rewrite("tests.contracts")
