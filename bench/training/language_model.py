"""A language model of bytes that learns fast for its size: 10 million parameters.

Differs from the demo's model by what makes a short training tell something: causal convolutions over four bytes before
attention and MLP, normalised queries and keys, and layers that begin as the identity.
"""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, LAYERS, WIDTH, HEADS, CONTEXT = 256, 8, 320, 5, 64
_BYTES_SEEN = 4  # by a convolution


def _norm(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],))


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.taps = nn.Conv1d(WIDTH, WIDTH, _BYTES_SEEN, groups=WIDTH, bias=False)
        nn.init.uniform_(self.taps.weight, -0.5, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.taps(F.pad(x.transpose(1, 2), (_BYTES_SEEN - 1, 0))).transpose(1, 2)


def _linear(inputs: int, outputs: int, deviation: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=deviation)
    return layer


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_convolution, self.mlp_convolution = Convolution(), Convolution()
        self.queries_keys_values = _linear(WIDTH, 3 * WIDTH, WIDTH**-0.5)
        self.attention_out = _linear(WIDTH, WIDTH, 0)
        self.mlp_in = _linear(WIDTH, 4 * WIDTH, WIDTH**-0.5)
        self.mlp_out = _linear(4 * WIDTH, WIDTH, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        projected = self.queries_keys_values(self.attention_convolution(_norm(x)))
        queries, keys, values = projected.view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(_norm(queries), _norm(keys), values, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp_out(F.relu(self.mlp_in(self.mlp_convolution(_norm(x)))).square())


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        nn.init.normal_(self.positions.weight, std=0.3)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.out = _linear(WIDTH, VOCABULARY, 0)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss, in nats a byte."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return F.cross_entropy(self.out(_norm(self.blocks(x))).flatten(0, 1), targets.flatten())
