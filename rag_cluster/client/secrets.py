"""Nothing secret in a job's record: command line, metadata and runtime_env of a job are shown by Ray's dashboard.

Secrets belong into the cluster's own environment (`RAG_POSTGRES_DSN`, `RAG_S3_SECRET_KEY` ...), where jobs read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from rag_cluster.errors import InvalidRequestError
from rag_cluster.settings import Settings

_NAME = re.compile(
    r"(?i)secret|passw|passphrase|credential|private_?key|api_?key|access_?key|account_?key|(?:^|[_-])(?:token|sas|dsn|pwd)(?:$|[_-])"
)
_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@:]*:[^/\s@]+@", re.IGNORECASE)
_SIGNED = re.compile(
    r"(?i)[?&](?:x-amz-(?:signature|credential|security-token)|awsaccesskeyid|x-goog-signature|signature|sig|token"
    r"|access_token|api_?key|key|password|secret)="
)
_SHORTEST = 6
"""Characters of a secret that is looked for by its value; a shorter one would be found in any text."""

SETTINGS = frozenset(
    f"RAG_{name.upper()}" for name, field in Settings.model_fields.items() if field.annotation is SecretStr
)
"""Environment variables of our own that hold secrets."""


def refuse_secrets(
    arguments: Sequence[str], runtime_env: Mapping[str, Any], metadata: Mapping[str, str], known: Iterable[str] = ()
) -> None:
    """InvalidRequestError when a job's record would show a secret. known: secrets of this process, looked for anywhere.

    The message names the place, never the value.
    """
    if list(arguments[:1]) == ["keys"]:
        raise InvalidRequestError("A new API key would stand in the job's log: run `rag-cluster keys` in a terminal.")
    for place, value in _texts(arguments, runtime_env, metadata):
        if _IN_URL.search(value) or _SIGNED.search(value):
            raise _refusal(place, "is a URL with credentials")
        if any(secret in value for secret in known if len(secret) >= _SHORTEST):
            raise _refusal(place, "holds a secret of this process")
    for place, names in (("env_vars", runtime_env.get("env_vars") or {}), ("metadata", metadata)):
        for name in names:
            if name in SETTINGS or _NAME.search(name):
                raise _refusal(f"{place}[{name!r}]", "is by its name a secret")


def settings_secrets(settings: Settings) -> list[str]:
    """The values of the secret settings that are set."""
    values = (value for _, value in settings if isinstance(value, SecretStr))
    return [value.get_secret_value() for value in values if value.get_secret_value()]


def _texts(
    arguments: Sequence[str], runtime_env: Mapping[str, Any], metadata: Mapping[str, str]
) -> Iterable[tuple[str, str]]:
    yield from ((f"argument {number}", argument) for number, argument in enumerate(arguments, 1))
    yield from ((f"metadata[{name!r}]", value) for name, value in metadata.items())
    for name, value in runtime_env.items():
        yield f"runtime_env[{name!r}]", value if isinstance(value, str) else json.dumps(value, default=str)


def _refusal(place: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{place} {reason}, and Ray's dashboard would show it with the job: set it in the cluster's own environment."
    )
