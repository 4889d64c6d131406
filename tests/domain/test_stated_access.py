"""Access as a person states it in a command, a call or a manifest: what no document can have is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rag_cluster.domain.access import AccessAttributes, stated_access
from rag_cluster.errors import InvalidRequestError


def test_names_are_taken_without_surrounding_space() -> None:
    assert stated_access([" finance", "审计 "], " 港口 ", 3) == AccessAttributes(("finance", "审计"), "港口", 3)


@pytest.mark.parametrize(
    ("acl", "department", "security_level"),
    [
        ([""], None, 0),
        ([" "], None, 0),
        (["x" * 201], None, 0),
        (["a\0b"], None, 0),
        ([f"{number} {'长' * 50}" for number in range(20)], None, 0),
        (None, "", 0),
        (None, "\ud800", 0),
        (None, None, 10),
        (None, None, -1),
    ],
)
def test_what_no_document_can_have_is_refused(
    acl: Sequence[str] | None, department: str | None, security_level: int
) -> None:
    with pytest.raises(InvalidRequestError):
        stated_access(acl, department, security_level)
