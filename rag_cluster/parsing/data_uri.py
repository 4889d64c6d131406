"""Pictures that a document carries inside itself as data: URIs."""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from rag_cluster.errors import CorruptDocumentError, DocumentTooLargeError
from rag_cluster.parsing.limits import ParseLimits, check_image_size


@dataclass(frozen=True, slots=True)
class EmbeddedPicture:
    """Bytes of a raster image that can be opened; sizes in pixels."""

    content: bytes
    media_type: str
    width: int
    height: int


def embedded_picture(uri: str, limits: ParseLimits) -> EmbeddedPicture:
    """Decode "data:image/...". CorruptDocumentError when it is no raster image, DocumentTooLargeError by its size."""
    from PIL import Image, UnidentifiedImageError

    head, _, body = uri[5:].partition(",")
    try:
        content = base64.b64decode(body) if head.endswith(";base64") else unquote_to_bytes(body)
        with Image.open(io.BytesIO(content)) as picture:
            found = EmbeddedPicture(content, Image.MIME.get(picture.format or "", ""), picture.width, picture.height)
    except (binascii.Error, ValueError, UnidentifiedImageError, OSError, SyntaxError) as error:
        raise CorruptDocumentError("it cannot be read") from error
    except Image.DecompressionBombError as error:
        raise DocumentTooLargeError(str(error)) from error
    check_image_size(found.width, found.height, limits)
    return found
