"""Models of random weights in the shapes of bge-m3 and bge-reranker-v2-m3, a tokenizer for them, and texts."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SYLLABLES = [first + second for first in "bcdfghklmnprstvw" for second in ("a", "e", "i", "o", "u", "an", "er", "in")]
_CHINESE = [chr(code) for code in range(0x4E00, 0x4E00 + 3000)]
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")


@dataclass(frozen=True, slots=True)
class Shape:
    """Of an XLM-RoBERTa model."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    intermediate: int

    def flops(self, lengths: list[int]) -> float:
        """Of the matrix products over texts of these lengths: what a GPU's rate is compared with."""
        dense = 2 * self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.intermediate)
        attention = 4 * self.layers * self.hidden
        return float(sum(dense * length + attention * length**2 for length in lengths))


BGE_M3 = Shape(250_002, 1024, 24, 16, 4096)
"""Of bge-m3 and bge-reranker-v2-m3: 568 million parameters."""
SMALL = Shape(30_000, 384, 6, 12, 1536)
"""For CPUs: MiniLM's layers."""


def save_models(folder: Path, shape: Shape, device: str) -> tuple[Path, Path]:
    """(embedding model, reranker) with the same random layers, made on `device`."""
    import torch
    from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification

    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate,
        max_position_embeddings=8194,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        num_labels=1,
    )
    with torch.device(device):
        model = XLMRobertaForSequenceClassification(config)
    reranker, embedder = folder / "reranker", folder / "embedder"
    model.save_pretrained(reranker)
    model.roberta.save_pretrained(embedder)
    for place in (reranker, embedder):
        save_tokenizer(place)
    modules = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    _write(embedder / "modules.json", [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(modules)
    ])  # fmt: skip
    _write(embedder / "1_Pooling/config.json",
           {"word_embedding_dimension": shape.hidden, "pooling_mode_cls_token": True})  # fmt: skip
    _write(embedder / "sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False})
    return embedder, reranker


def save_tokenizer(folder: Path) -> None:
    """Unigrams, as SentencePiece has them: syllables, their pairs, and Chinese characters and pairs of them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    chance = random.Random(1)  # noqa: S311
    pairs = {a + b for a in _SYLLABLES for b in chance.sample(_SYLLABLES, 60)}
    words = {chance.choice(_CHINESE[:800]) + chance.choice(_CHINESE[:800]) for _ in range(9000)}
    pieces = [("▁", -3.0)]
    for group, score in ((_SYLLABLES, -7.0), (sorted(pairs), -9.0), (_CHINESE, -9.0), (sorted(words), -11.0)):
        pieces += [(mark + piece, score) for piece in group for mark in ("", "▁")]
    seen = dict([(piece, 0.0) for piece in _SPECIAL] + pieces)
    tokenizer = Tokenizer(models.Unigram(list(seen.items())[:29_000], unk_id=3, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B:0 </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 512,
        "model_input_names": ["input_ids", "attention_mask"],
        "bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>",
        "unk_token": "<unk>",
    })  # fmt: skip


def made_texts(count: int, mean: int, most: int, seed: int = 7) -> list[str]:
    """Texts of about `mean` tokens, spread as chunks are (log-normal), every second one Chinese."""
    chance = random.Random(seed)  # noqa: S311
    texts = []
    for number in range(count):
        length = min(max(int(chance.lognormvariate(math.log(mean) - 0.25, 0.7)), 4), most)
        texts.append(_chinese(chance, length) if number % 2 else _english(chance, length))
    return texts


def _english(chance: random.Random, tokens: int) -> str:
    """Words of one to four syllables: about 1.6 pieces each."""
    words = max(int(tokens / 1.6), 1)
    return " ".join("".join(chance.choices(_SYLLABLES, k=chance.choice((1, 2, 2, 3, 4)))) for _ in range(words))


def _chinese(chance: random.Random, tokens: int) -> str:
    """Characters of uneven frequency, about one piece each."""
    return "".join(_CHINESE[min(int(chance.expovariate(1 / 400)), 2999)] for _ in range(tokens))


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
