"""The vision describer against an endpoint of this process, over real HTTP."""

from __future__ import annotations

import base64
import io
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from PIL import Image

from rag_cluster.engines import options as engine_options
from rag_cluster.engines.vision import MAX_SIDE, OpenAIVisionDescriber
from rag_cluster.errors import ModelUnavailableError
from tests.fixtures.json_endpoint import Answer, JsonEndpoint, serving


@dataclass
class Endpoint(JsonEndpoint):
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    """(status, body) of the requests to come; the last one stays."""

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        return (*(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]), {})


def answer(text: object) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    state = Endpoint(answers=[(200, answer("A crane\nlifts a container."))])
    with serving(state, state.answer):
        yield state


def describer(endpoint: Endpoint, **options: Any) -> OpenAIVisionDescriber:
    options = {"timeout": 5.0, "retries": 1, "min_wait": 0.01, "max_wait": 0.01, **options}
    return OpenAIVisionDescriber(engine_options.Endpoint(endpoint.url, **options), "llava")


def picture(size: tuple[int, int] = (120, 80), form: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "navy").save(out, form)
    return out.getvalue()


def sent(endpoint: Endpoint) -> Image.Image:
    url = endpoint.requests[-1]["messages"][0]["content"][1]["image_url"]["url"]
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def test_the_picture_goes_out_as_it_is_and_the_text_comes_back_on_one_line(endpoint: Endpoint) -> None:
    assert describer(endpoint, api_key="secret").describe(picture(), "image/png") == "A crane lifts a container."
    assert endpoint.requests[0]["model"] == "llava" and endpoint.keys == ["Bearer secret"]
    assert sent(endpoint).size == (120, 80)


def test_without_a_key_none_is_sent(endpoint: Endpoint) -> None:
    describer(endpoint).describe(picture(), "image/png")
    assert endpoint.keys == [None]


def test_a_large_picture_is_scaled_down_and_a_format_of_its_own_is_sent_as_png(endpoint: Endpoint) -> None:
    describer(endpoint).describe(picture((MAX_SIDE * 2, 100), "JPEG"), "image/jpeg")
    assert max(sent(endpoint).size) == MAX_SIDE
    describer(endpoint).describe(picture(form="TIFF"), "image/tiff")
    assert sent(endpoint).format == "PNG"


def test_an_outage_is_tried_again(endpoint: Endpoint) -> None:
    endpoint.answers.insert(0, (503, b"loading"))
    assert describer(endpoint).describe(picture(), "image/png")
    assert len(endpoint.requests) == 2


def test_retries_are_bounded(endpoint: Endpoint) -> None:
    endpoint.answers = [(500, b"broken")]
    with pytest.raises(ModelUnavailableError, match="500: broken"):
        describer(endpoint, retries=2).describe(picture(), "image/png")
    assert len(endpoint.requests) == 3


def test_a_refusal_is_not_tried_again(endpoint: Endpoint) -> None:
    endpoint.answers = [(400, b"no such model")]
    with pytest.raises(ModelUnavailableError, match="no such model"):
        describer(endpoint).describe(picture(), "image/png")
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("body", [b"not JSON", b"{}", b'{"choices": []}', answer(None), answer("  ")])
def test_an_answer_without_text_is_a_failure(endpoint: Endpoint, body: bytes) -> None:
    endpoint.answers = [(200, body)]
    with pytest.raises(ModelUnavailableError, match=r"nothing|not a chat completion"):
        describer(endpoint).describe(picture(), "image/png")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "nonsense", "ftp://127.0.0.1/v1", "http://["])
def test_an_endpoint_that_is_not_there_is_a_failure(url: str) -> None:
    gone = OpenAIVisionDescriber(engine_options.Endpoint(url, timeout=1.0, retries=0), "llava")
    with pytest.raises(ModelUnavailableError):
        gone.describe(picture(), "image/png")


def test_what_is_no_picture_is_a_failure_and_never_sent(endpoint: Endpoint) -> None:
    with pytest.raises(ModelUnavailableError, match="cannot be sent"):
        describer(endpoint).describe(b"no picture", "image/png")
    assert not endpoint.requests


def test_it_travels_to_actors_and_its_name_is_model_and_prompt(endpoint: Endpoint) -> None:
    first = describer(endpoint)
    first.describe(picture(), "image/png")
    copy = pickle.loads(pickle.dumps(first))
    assert copy.describe(picture(), "image/png") == "A crane lifts a container."
    assert copy.name == first.name and first.name.startswith("llava-")
