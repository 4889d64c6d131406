"""The encoder itself: BERT and XLM-RoBERTa are the same post-norm layers over one flat row of tokens.

Nothing but `Attend` knows where a text ends, so that no layer ever computes padding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from rag_cluster.engines.encoder.attention import Attend
from rag_cluster.engines.encoder.checkpoint import Architecture, Pooling

ACTIVATIONS = {"gelu": F.gelu, "gelu_new": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu}


class Layer(nn.Module):
    """(t, hidden) -> (t, hidden): attention and a two-layer perceptron, each with its residual and norm after it."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.heads = shape.heads
        self.activation = ACTIVATIONS[shape.activation]
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.output = nn.Linear(shape.hidden, shape.hidden)
        self.attention_norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)
        self.up = nn.Linear(shape.hidden, shape.intermediate)
        self.down = nn.Linear(shape.intermediate, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)

    def forward(self, x: torch.Tensor, bounds: torch.Tensor, longest: int, attend: Attend) -> torch.Tensor:
        """One layer."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))
        x = self.attention_norm(x + self.output(attend(qkv, bounds, longest).flatten(1)))
        return self.norm(x + self.down(self.activation(self.up(x))))


class Encoder(nn.Module):
    """Token ids -> hidden states, (t,) -> (t, hidden)."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.first_position = shape.first_position
        self.words = nn.Embedding(shape.vocabulary, shape.hidden)
        self.places = nn.Embedding(shape.positions, shape.hidden)
        self.types = nn.Embedding(max(shape.token_types, 1), shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.epsilon)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        types: torch.Tensor | None,
        bounds: torch.Tensor,
        longest: int,
        attend: Attend,
    ) -> torch.Tensor:
        """positions: from 0 in every text. types: None where all are 0. bounds, longest: as in `packing.Pack`."""
        kinds = self.types.weight[0] if types is None else self.types(types)
        x = self.norm(self.words(ids) + kinds + self.places(positions + self.first_position))
        for layer in self.layers:
            x = layer(x, bounds, longest, attend)
        return x


class EmbeddingHead(nn.Module):
    """Hidden states -> float32 unit vectors, (t, hidden) -> (n, hidden)."""

    def __init__(self, pooling: Pooling, width: int) -> None:
        super().__init__()
        self.pooling = pooling
        self.width = width

    def forward(self, x: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        """The first token of each text, or the mean of all its tokens."""
        pooled = first_tokens(x, bounds).float() if self.pooling == "cls" else means(x.float(), bounds)
        return F.normalize(pooled, dim=-1)


class ScoreHead(nn.Module):
    """Hidden states -> float32 logits, (t, hidden) -> (n, 1): BERT's pooler and classifier, RoBERTa's head.

    Its weights stay float32: around -10, where irrelevant texts lie, bfloat16 has one number for each 1/16.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.width = 1
        self.dense = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
        """From the first token of each text."""
        scores: torch.Tensor = self.out(torch.tanh(self.dense(first_tokens(x, bounds).float())))
        return scores


def means(x: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """(n, hidden): of each text's tokens; 0 of an empty text. Nothing here makes the CPU wait for a GPU."""
    text_of_token = torch.bucketize(torch.arange(len(x), device=x.device), bounds[1:], right=True)
    sums = x.new_zeros(len(bounds) - 1, x.shape[1]).index_add_(0, text_of_token, x)
    return sums / (bounds[1:] - bounds[:-1]).clamp(min=1).unsqueeze(1)


def first_tokens(x: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """(n, hidden): of each text. Of an empty text, which a CUDA graph may have at its end, any token."""
    return x[bounds[:-1].clamp(max=len(x) - 1)]
