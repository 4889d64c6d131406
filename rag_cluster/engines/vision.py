"""Pictures in words, by any endpoint that speaks OpenAI's chat completions with pictures (vLLM, Ollama, a cloud)."""

from __future__ import annotations

import base64
import io

from rag_cluster.domain import ids
from rag_cluster.engines.chat_completions import ChatCompletions
from rag_cluster.engines.options import Endpoint
from rag_cluster.errors import ModelUnavailableError

PROMPT = (
    "Describe this picture for a search index: what it shows, the text and figures in it, what a chart's axes and "
    "trends are. Plain sentences without markup, at most 120 words, in the language of the picture's own text, "
    "English if it has none."
)
MAX_TOKENS = 400
MAX_SIDE = 2048
"""Pixels of the longer side that is sent; what is larger is scaled down."""
_SENT_AS_IS = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})


class OpenAIVisionDescriber:
    """VisionDescriber. Thread-safe and picklable; connects at its first call."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._client = ChatCompletions(endpoint, model)
        self.name = f"{model}-{ids.fingerprint(prompt=PROMPT, tokens=MAX_TOKENS, side=MAX_SIDE)[:8]}"

    def describe(self, image: bytes, media_type: str) -> str:
        """A few sentences. image: any raster format that Pillow reads, within the pixel limit of parsing.

        ModelUnavailableError when the picture cannot be sent, or the endpoint fails or answers nothing.
        """
        content, media_type = _sendable(image, media_type)
        url = f"data:{media_type};base64,{base64.b64encode(content).decode()}"
        shown = [{"type": "text", "text": PROMPT}, {"type": "image_url", "image_url": {"url": url}}]
        answer = self._client.complete([{"role": "user", "content": shown}], max_tokens=MAX_TOKENS, temperature=0)
        if text := " ".join(answer.split()):
            return text
        raise ModelUnavailableError(f"{self._client.url} described a picture with nothing that could be read")


def _sendable(image: bytes, media_type: str) -> tuple[bytes, str]:
    """(bytes, media type) that endpoints take: PNG, JPEG, WebP or GIF, not larger than MAX_SIDE."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(image)) as picture:
            if media_type in _SENT_AS_IS and max(picture.size) <= MAX_SIDE:
                return image, media_type
            picture.draft("RGB", (MAX_SIDE, MAX_SIDE))  # JPEG alone: decodes to about this size
            shown = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ModelUnavailableError(f"A picture of type {media_type} cannot be sent: {error}") from error
    shown.thumbnail((MAX_SIDE, MAX_SIDE))
    out = io.BytesIO()
    shown.save(out, "PNG")
    return out.getvalue(), "image/png"
