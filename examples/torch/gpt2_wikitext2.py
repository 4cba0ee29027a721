"""A small GPT-2 on WikiText-2, or any other text: epoch seconds and loss, by ranks and compression.

    python examples/torch/gpt2_wikitext2.py --data wiki.train.tokens --plot gpt2.png
    python examples/torch/gpt2_wikitext2.py --quick --ranks 2
    QCCL_LINK_RATE=1gbit torchrun --nproc-per-node 4 examples/torch/gpt2_wikitext2.py --compressions minmax:bits=4

The architecture is GPT-2's: pre-norm blocks with biases, learned positions, the output tied to the embedding. The
weights start random, and tokens are words.
"""

import argparse

import epochs
import torch
from epochs import Task, Vocabulary, load_words
from torch import Tensor, nn
from torch.nn import functional as F


class GPT2(nn.Module):
    def __init__(self, vocabulary: int, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        blocks = (
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        """The mean loss of predicting each word of a row except the first, in nats."""
        inputs, targets = words[:, :-1], words[:, 1:]
        length = inputs.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.tokens(inputs) + self.positions.weight[:length]
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return F.cross_entropy(F.linear(self.norm(x), self.tokens.weight).flatten(0, 1), targets.flatten())


def make_task(arguments: argparse.Namespace) -> Task:
    context = 32 if arguments.quick else 64
    size = 1000 if arguments.quick else 4000
    training, validation = load_words(arguments.data, byte_limit=40_000 if arguments.quick else 250_000)
    vocabulary = Vocabulary(training, size)

    def rows(words: list[str]) -> Tensor:
        numbers = torch.tensor(vocabulary.numbers(words))
        return numbers[: len(numbers) // (context + 1) * (context + 1)].view(-1, context + 1)

    def model() -> GPT2:
        if arguments.quick:
            return GPT2(size, layers=2, width=64, heads=2, context=context)
        return GPT2(size, layers=4, width=128, heads=4, context=context)

    return Task(
        model=model,
        training=(rows(training),),
        validation=(rows(validation[: len(training) // 10]),),
        batch=8,
        rate=1e-3,
    )


if __name__ == "__main__":
    assert __doc__
    epochs.main(__doc__, make_task)
