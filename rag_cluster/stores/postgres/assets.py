"""Stored images of documents: the part of `PostgresCatalog` about assets."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg.types.json import Jsonb

from rag_cluster.domain.access import Principal
from rag_cluster.domain.documents import DocumentAsset
from rag_cluster.errors import ClaimLostError, NotFoundError
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.access import READABLE_DOCUMENTS, principal_values
from rag_cluster.stores.postgres.adapters import as_uuid
from rag_cluster.stores.postgres.database import Database


class AssetCatalog:
    """`Catalog`'s methods on assets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_assets(self, assets: Sequence[DocumentAsset]) -> None:
        """Upsert, all or none. ClaimLostError when a version is gone: the document was deleted meanwhile."""
        values = [
            {
                "id": asset.id,
                "document_id": asset.document_id,
                "version": asset.version,
                "object_key": asset.object_key,
                "media_type": asset.media_type,
                "sha256": asset.sha256,
                "size": asset.size,
                "width": asset.width,
                "height": asset.height,
                "caption": asset.caption,
                "locator": Jsonb(asset.locator.to_dict()),
            }
            for asset in sorted(assets, key=lambda asset: asset.id)  # one order for all: no deadlock
        ]
        try:
            with self._database.transaction() as connection, connection.cursor() as cursor:
                cursor.executemany(
                    """INSERT INTO document_assets (id, document_id, version, object_key, media_type, sha256, size,
                         width, height, caption, locator)
                       VALUES (%(id)s, %(document_id)s, %(version)s, %(object_key)s, %(media_type)s, %(sha256)s,
                         %(size)s, %(width)s, %(height)s, %(caption)s, %(locator)s)
                       ON CONFLICT (id, version) DO UPDATE SET object_key = EXCLUDED.object_key,
                         media_type = EXCLUDED.media_type, caption = EXCLUDED.caption, locator = EXCLUDED.locator""",
                    values,
                )
        except psycopg.errors.ForeignKeyViolation as error:
            raise ClaimLostError("the document was deleted while its images were stored") from error

    def assets(self, document_id: str) -> list[DocumentAsset]:
        """Of all versions, by version."""
        with self._database.connection() as connection:
            found = connection.execute(
                "SELECT * FROM document_assets WHERE document_id = %s ORDER BY version, id",
                (as_uuid(document_id, "document"),),
            ).fetchall()
        return [rows.asset(row) for row in found]

    def asset(self, asset_id: str, principal: Principal) -> DocumentAsset:
        """An asset of a visible document that the principal may read: NotFoundError otherwise."""
        values = principal_values(principal) | {"id": as_uuid(asset_id, "asset")}
        with self._database.connection() as connection:
            row = connection.execute(
                f"""SELECT x.* FROM {READABLE_DOCUMENTS}
                    JOIN document_assets x ON x.document_id = d.id AND x.version = d.published_version
                    WHERE x.id = %(id)s""",  # noqa: S608
                values,
            ).fetchone()
        if row is None:
            raise NotFoundError(f"no asset {asset_id!r}")
        return rows.asset(row)
