"""Pictures in words, by any endpoint that speaks OpenAI's chat completions with pictures (vLLM, Ollama, a cloud)."""

from __future__ import annotations

import base64
import io
import json
import threading
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from rag_cluster.domain import ids
from rag_cluster.errors import ModelUnavailableError

PROMPT = (
    "Describe this picture for a search index: what it shows, the text and figures in it, what a chart's axes and "
    "trends are. Plain sentences without markup, at most 120 words, in the language of the picture's own text, "
    "English if it has none."
)
MAX_TOKENS = 400
MAX_SIDE = 2048
"""Pixels of the longer side that is sent; what is larger is scaled down."""
MAX_ANSWER_BYTES = 1024 * 1024
_SENT_AS_IS = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""


class _Refused(Exception):
    """The endpoint answered with an error status; the message quotes the start of its answer."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"status {status}: {body}")
        self.status = status


class OpenAIVisionDescriber:
    """VisionDescriber. Thread-safe and picklable; connects at its first call.

    url: up to and with the version, e.g. http://localhost:8000/v1. timeout: seconds of one attempt. retries: further
    attempts after an outage, with exponential waits between min_wait and max_wait seconds.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str = "",
        *,
        timeout: float = 60.0,
        retries: int = 2,
        min_wait: float = 1.0,
        max_wait: float = 10.0,
    ) -> None:
        self._url = url.rstrip("/") + "/chat/completions"
        self._model = model
        self._api_key = api_key
        self._timeout = timeout
        self._retries = retries
        self._waits = (min_wait, max_wait)
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()
        self.name = f"{model}-{ids.fingerprint(prompt=PROMPT, tokens=MAX_TOKENS, side=MAX_SIDE)[:8]}"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_client", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._client, self._lock = None, threading.Lock()

    def describe(self, image: bytes, media_type: str) -> str:
        """A few sentences. image: any raster format that Pillow reads, within the pixel limit of parsing.

        ModelUnavailableError when the picture cannot be sent, or the endpoint fails or answers nothing.
        """
        content, media_type = _sendable(image, media_type)
        request = {
            "model": self._model,
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": PROMPT},
                        {
                            "type": "image_url",
                            "image_url": {"url": f"data:{media_type};base64,{base64.b64encode(content).decode()}"},
                        },
                    ],
                }
            ],
        }
        attempts = Retrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_attempt(self._retries + 1),
            wait=wait_exponential(multiplier=self._waits[0], max=self._waits[1]),
            reraise=True,
        )
        try:
            text = _text(attempts(self._post, request))
        except (httpx.HTTPError, httpx.InvalidURL, _Refused) as error:
            raise ModelUnavailableError(f"{self._url} did not describe a picture: {_reason(error)}") from error
        if not text:
            raise ModelUnavailableError(f"{self._url} described a picture with nothing that could be read")
        return text

    def _post(self, request: dict[str, Any]) -> bytes:
        """The answer's bytes, up to a limit. httpx.HTTPError, _Refused."""
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        with self._connected().stream("POST", self._url, json=request, headers=headers) as response:
            body = b""
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise _Refused(response.status_code, f"an answer of more than {MAX_ANSWER_BYTES} bytes")
            if response.status_code != 200:
                raise _Refused(response.status_code, body[:300].decode("utf-8", "replace"))
            return body

    def _connected(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(timeout=self._timeout, follow_redirects=False)
            return self._client


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, _Refused):
        return error.status in _PASSING
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip().removeprefix("_Refused ")


def _text(answer: bytes) -> str:
    """The first choice's text with its white space collapsed; "" when there is none."""
    try:
        content = json.loads(answer)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        return ""
    return " ".join(content.split()) if isinstance(content, str) else ""


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
