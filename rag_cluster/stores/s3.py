"""S3 and what speaks its protocol (MinIO, SeaweedFS, ...): one way to connect, one translation of its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from rag_cluster.errors import ExternalServiceError, NotFoundError

_CONNECT_SECONDS = 5.0
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class S3Options:
    """How to reach S3. Empty fields follow the machine's own AWS configuration."""

    endpoint_url: str = ""
    access_key: str = ""
    secret_key: str = ""
    region: str = ""
    timeout: float = 60.0

    def connect(self) -> Any:
        """An s3fs filesystem. It shares no cached listing: other processes write too."""
        import s3fs

        return s3fs.S3FileSystem(
            key=self.access_key or None,
            secret=self.secret_key or None,
            endpoint_url=self.endpoint_url or None,
            client_kwargs={"region_name": self.region} if self.region else {},
            config_kwargs={
                "connect_timeout": min(_CONNECT_SECONDS, self.timeout),
                "read_timeout": self.timeout,
                "retries": {"max_attempts": _ATTEMPTS, "mode": "standard"},
            },
            use_listings_cache=False,
            skip_instance_cache=True,
        )


@contextmanager
def translated_errors(what: str, outage: type[ExternalServiceError]) -> Iterator[None]:
    """Turn what file systems and S3 raise into NotFoundError (it is not there) or an outage (everything else)."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFoundError(f"{what} does not exist") from error
    except (OSError, BotoCoreError, ClientError) as error:
        raise outage(f"{what}: {error or type(error).__name__}") from error


def split_bucket(path: str) -> tuple[str, str]:
    """ "bucket/a/b" -> ("bucket", "a/b")."""
    bucket, _, key = path.partition("/")
    return bucket, key


def list_pages(files: Any, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """Objects (Key, Size, ETag) below a prefix in key order, a page of 1,000 at a time."""
    following: dict[str, str] = {}
    while True:
        page = files.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1000, **following)
        yield from page.get("Contents", ())
        if not page.get("IsTruncated"):
            return
        following = {"ContinuationToken": page["NextContinuationToken"]}
