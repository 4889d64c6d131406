"""A Hugging Face folder or id -> what the engines must know of it: files, architecture, pooling, prefixes, limits.

Reads configuration only; weights are loaded by `weights`. Formats: config.json (transformers), modules.json,
N_Pooling/config.json, sentence_bert_config.json and config_sentence_transformers.json (sentence-transformers).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from rag_cluster.domain import ids
from rag_cluster.engines.options import EngineOptions, require
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError

Pooling = Literal["cls", "mean"]

CONFIGURATION = ("*.json", "*/config.json", "*.txt", "*.model")
ARCHITECTURES = frozenset({"bert", "xlm-roberta", "roberta"})
"""model_type of what the encoder computes."""
_OFFSET = frozenset({"xlm-roberta", "roberta"})
"""Their positions begin after the padding's id."""

_UNKNOWN_LIMIT = 1_000_000
"""Tokenizers without a limit say 1e30."""
_SAMPLES, _SAMPLE_BYTES = 16, 64 * 1024
_KNOWN_PREFIXES: tuple[tuple[str, str, str], ...] = (
    (r"(multilingual-)?e5-(small|base|large)(-v2)?", "query: ", "passage: "),
    (r"bge-(small|base|large)-en(-v1\.5)?", "Represent this sentence for searching relevant passages: ", ""),
    (r"bge-(small|base|large)-zh(-v1\.5)?", "为这个句子生成表示以用于检索相关文章：", ""),
)
"""(name, query prefix, document prefix) of families whose files do not say; from their model cards."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Of a BERT-like encoder with post-norm layers. first_position: position id of the first token."""

    model_type: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    intermediate: int
    positions: int
    token_types: int
    epsilon: float
    activation: str
    first_position: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Picklable. name: as the settings have it; folder: where its files are on this machine."""

    name: str
    folder: Path
    model: str
    """A hub's id; empty for a folder."""
    revision: str
    """Commit of a hub's model, else a digest of the folder's content."""
    transformer: Path
    architecture: Architecture | None
    """None: of a kind that the varlen engine does not compute."""
    model_type: str
    dimension: int
    """Of its vectors; 0 when its configuration does not say."""
    pooling: Pooling
    max_tokens: int
    """Of one text or pair, special tokens included."""
    lower_case: bool
    query_prefix: str
    document_prefix: str
    unsupported: str = ""
    """Why varlen cannot compute it; empty when it can."""
    modules: bool = False
    """Whether sentence-transformers' files are there."""
    activation: str = ""
    """The score's activation that a cross-encoder's configuration asks for."""

    def fingerprint(self) -> str:
        """Of the vectors: model, revision, dimension, pooling, prefixes, limit, normalisation; of no engine."""
        return ids.fingerprint(
            model=self.model,
            revision=self.revision,
            dimension=self.dimension,
            pooling=self.pooling,
            max_tokens=self.max_tokens,
            prefixes=[self.query_prefix, self.document_prefix],
            normalisation="l2",
        )


def open_checkpoint(name: str, options: EngineOptions) -> Checkpoint:
    """The checkpoint of a folder, or of a hub id with an optional revision: "org/model@revision".

    A hub's configuration is downloaded unless it is in the cache. InvalidSettingError when there is no such model or
    its configuration cannot be read; ModelUnavailableError when the hub does not answer.
    """
    if not name:
        raise InvalidSettingError("The engine needs a model: ENGINE:FOLDER or ENGINE:ORG/MODEL[@REVISION]")
    checkpoint = _opened(name, options.load_timeout)
    limit = checkpoint.max_tokens
    if options.max_tokens:
        limit = min(limit, options.max_tokens)
    return replace(
        checkpoint,
        max_tokens=limit,
        query_prefix=checkpoint.query_prefix if options.query_prefix is None else options.query_prefix,
        document_prefix=checkpoint.document_prefix if options.document_prefix is None else options.document_prefix,
    )


@lru_cache(maxsize=8)
def _opened(name: str, timeout: float) -> Checkpoint:
    folder, model = locate(name, ("config.json",), timeout)
    return read(name, folder, model)


def locate(name: str, needed: tuple[str, ...], timeout: float) -> tuple[Path, str]:
    """(folder, hub id) with the configuration and the files of these patterns, downloaded where the cache lacks them.

    The hub id of a local folder is empty.
    """
    local = Path(name).expanduser()
    if local.is_dir():
        return local.absolute(), ""
    model, _, revision = name.partition("@")
    if name.startswith((".", "/", "~")) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model):
        raise InvalidSettingError(f"There is no folder {name}")
    return _from_hub(model, revision or None, needed, timeout), model


def _from_hub(model: str, revision: str | None, needed: tuple[str, ...], timeout: float) -> Path:
    require(f"for {model}", "huggingface_hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    def fetch(*, cached: bool) -> Path:
        return Path(
            snapshot_download(
                model,
                revision=revision,
                allow_patterns=[*CONFIGURATION, *needed],
                local_files_only=cached,
                etag_timeout=min(timeout, 30.0),
            )
        )

    try:
        try:
            folder = fetch(cached=True)
            complete = any(any(folder.glob(pattern)) for pattern in needed)
        except LocalEntryNotFoundError:
            complete = False
        if not complete:
            folder = fetch(cached=False)
    except RepositoryNotFoundError as error:
        raise InvalidSettingError(f"There is no model {model}, neither a folder nor at the hub") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelUnavailableError(f"{model} is no folder, and the hub does not give it: {error}") from error
    return folder


def read(name: str, folder: Path, model: str = "") -> Checkpoint:
    """The checkpoint of a folder whose configuration is there; model: its hub id, whose folder is named by commit."""
    modules = _json(folder / "modules.json", default=[])
    kinds = {str(module.get("type", "")).rsplit(".", 1)[-1]: folder / module.get("path", "") for module in modules}
    transformer = kinds.get("Transformer", folder)
    config = _json(transformer / "config.json")
    bert = _json(transformer / "sentence_bert_config.json", default={})
    pooling, problem = _pooling(kinds)
    if modules and not problem and (extra := kinds.keys() - {"Transformer", "Pooling", "Normalize"}):
        problem = f"its sentence-transformers module {', '.join(sorted(extra))} is not computed by varlen"
    architecture, unknown = _architecture(config)
    query, document = _prefixes(name, _json(folder / "config_sentence_transformers.json", default={}))
    limits = [
        bert.get("max_seq_length"),
        _json(transformer / "tokenizer_config.json", default={}).get("model_max_length"),
    ]
    if architecture:
        limits.append(architecture.positions - architecture.first_position)
    return Checkpoint(
        name=name,
        folder=folder,
        model=model,
        revision=folder.name if model else digest(folder),
        transformer=transformer,
        architecture=architecture,
        model_type=str(config.get("model_type")),
        dimension=_dimension(kinds, config),
        pooling=pooling,
        max_tokens=min((int(limit) for limit in limits if limit and limit < _UNKNOWN_LIMIT), default=512),
        lower_case=bool(bert.get("do_lower_case", False)),
        query_prefix=query,
        document_prefix=document,
        unsupported=problem or unknown,
        modules=bool(modules),
        activation=str((config.get("sentence_transformers") or {}).get("activation_fn", "")),
    )


def _architecture(config: dict[str, Any]) -> tuple[Architecture | None, str]:
    """(architecture, "") or (None, why it is not computed)."""
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        return None, f"its architecture is {kind}, and varlen computes {', '.join(sorted(ARCHITECTURES))}"
    if config.get("position_embedding_type", "absolute") != "absolute":
        return None, f"its positions are {config['position_embedding_type']}, not absolute"
    if config.get("hidden_act", "gelu") not in ("gelu", "gelu_new", "relu"):
        return None, f"its activation is {config['hidden_act']}"
    padding = config.get("pad_token_id")
    return Architecture(
        model_type=str(kind),
        vocabulary=int(config["vocab_size"]),
        hidden=int(config["hidden_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=int(config["num_attention_heads"]),
        intermediate=int(config["intermediate_size"]),
        positions=int(config["max_position_embeddings"]),
        token_types=int(config.get("type_vocab_size", 0)),
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        activation=str(config.get("hidden_act", "gelu")),
        first_position=(1 if padding is None else int(padding)) + 1 if kind in _OFFSET else 0,
    ), ""


def _dimension(kinds: dict[str, Path], config: dict[str, Any]) -> int:
    if "Dense" in kinds:
        return int(_json(kinds["Dense"] / "config.json").get("out_features", 0))
    return int(next((config[name] for name in ("hidden_size", "d_model", "dim") if name in config), 0))


def _pooling(kinds: dict[str, Path]) -> tuple[Pooling, str]:
    """(pooling, why it is not computed). Without sentence-transformers' files: the mean, as that library does."""
    if "Pooling" not in kinds:
        return "mean", ""
    config = _json(kinds["Pooling"] / "config.json")
    if mode := config.get("pooling_mode"):
        modes = {str(mode)} if isinstance(mode, str) else set(map(str, mode))
    else:
        modes = {
            key.removeprefix("pooling_mode_")
            for key, value in config.items()
            if key.startswith("pooling_mode_") and value
        }
    if not config.get("include_prompt", True):
        return "mean", "its pooling leaves the prompt out"
    if modes in ({"cls_token"}, {"cls"}):
        return "cls", ""
    if modes in ({"mean_tokens"}, {"mean"}):
        return "mean", ""
    return "mean", f"its pooling is {', '.join(sorted(modes))}, and varlen computes cls and mean"


def _prefixes(name: str, config: dict[str, Any]) -> tuple[str, str]:
    """(query prefix, document prefix), as sentence-transformers' encode_query and encode_document take them."""
    prompts: dict[str, str] = config.get("prompts") or {}
    if any(prompts.values()):
        default = prompts.get(config.get("default_prompt_name") or "", "")
        query = prompts.get("query", default)
        document = next((prompts[key] for key in ("document", "passage", "corpus") if key in prompts), default)
        return query, document
    base = name.partition("@")[0].rstrip("/").rsplit("/", 1)[-1]
    for pattern, query, document in _KNOWN_PREFIXES:
        if re.fullmatch(pattern, base, re.IGNORECASE):
            return query, document
    return "", ""


def digest(folder: Path) -> str:
    """Of configuration, tokenizer, and samples of each file of weights: another training changes every one of them."""
    value = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        weights = path.suffix in (".safetensors", ".bin") and path.parent.name != "onnx"
        if not path.is_file() or not (weights or path.suffix == ".json"):
            continue
        size = path.stat().st_size
        value.update(f"{path.relative_to(folder).as_posix()} {size}\n".encode())
        with path.open("rb") as file:
            if size <= _SAMPLES * _SAMPLE_BYTES:
                value.update(file.read())
                continue
            for sample in range(_SAMPLES):
                file.seek((size - _SAMPLE_BYTES) * sample // (_SAMPLES - 1))
                value.update(file.read(_SAMPLE_BYTES))
    return value.hexdigest()[:16]


def _json(path: Path, default: Any = None) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if default is not None:
            return default
        raise InvalidSettingError(f"{path.parent} is no model: {path.name} is missing") from None
    except (OSError, ValueError) as error:
        raise InvalidSettingError(f"{path} cannot be read: {error}") from error
