"""A small BERT that detects whether two sentences are paraphrases: epoch seconds and loss, by ranks and compression.

    python examples/torch/bert_mrpc.py --data msr_paraphrase_train.txt --plot bert.png
    python examples/torch/bert_mrpc.py --quick --ranks 2

--data is a table of the Microsoft Research Paraphrase Corpus, or any text. A pair made from a text is a sentence and
the same sentence without some of its words (a paraphrase), or with an added "not" as well (no paraphrase). The
architecture is BERT's: post-norm blocks, learned positions and segments, a pooled first token. The weights start
random, and tokens are words.
"""

import argparse
import random
from itertools import groupby
from pathlib import Path

import epochs
import torch
from epochs import Task, Vocabulary, load_words
from torch import Tensor, nn
from torch.nn import functional as F

Pair = tuple[list[str], list[str], int]  # two sentences, and whether they mean the same
PAD, FIRST, SEPARATOR = range(3)  # the vocabulary's numbers follow these


class BERT(nn.Module):
    def __init__(self, vocabulary: int, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, F.gelu, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 2)
        for embedding in (self.tokens, self.positions, self.segments):
            nn.init.normal_(embedding.weight, std=0.02)

    def logits(self, words: Tensor) -> Tensor:
        segments = (words == SEPARATOR).cumsum(1).clamp(max=1)
        x = self.norm(self.tokens(words) + self.positions.weight + self.segments(segments))
        x = self.blocks(x, src_key_padding_mask=words == PAD)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))

    def forward(self, words: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(words), labels)


def read_table(path: Path) -> list[Pair]:
    """Reads pairs from lines with quality, two numbers and two sentences."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()[1:]
    columns = [line.split("\t") for line in lines]
    return [(first.split(), second.split(), int(quality)) for quality, _, _, first, second in columns]


def is_table(path: Path) -> bool:
    return path.read_bytes()[:20].lstrip(b"\xef\xbb\xbf").startswith(b"Quality")


def make_pairs(words: list[str], length: int) -> list[Pair]:
    chooser = random.Random(epochs.SEED)
    lines = [list(line) for ended, line in groupby(words, lambda word: word in ("\n", ".")) if not ended]
    lines = [line[:length] for line in lines if len(line) >= 6]
    pairs = []
    for line in lines:
        same = chooser.randrange(2)
        rest = [word for word in line if chooser.random() < 0.85]
        if not same:
            rest.insert(chooser.randrange(len(rest) + 1), "not")
        pairs.append((line, rest, same))
    return pairs


def make_task(arguments: argparse.Namespace) -> Task:
    length = 12 if arguments.quick else 30  # most words per sentence
    size = 500 if arguments.quick else 4000
    context = 2 * length + 2
    if arguments.data and is_table(Path(arguments.data)):
        pairs = read_table(Path(arguments.data))
        training, validation = pairs[: len(pairs) * 9 // 10], pairs[len(pairs) * 9 // 10 :]
    else:
        limit = 40_000 if arguments.quick else 400_000
        training, validation = (make_pairs(part, length) for part in load_words(arguments.data, limit))
        validation = validation[: len(training) // 5]
    vocabulary = Vocabulary([word for first, second, _ in training for word in first + second], size)

    def numbers(words: list[str]) -> list[int]:
        return [number + SEPARATOR + 1 for number in vocabulary.numbers(words[:length])]

    def rows(pairs: list[Pair]) -> tuple[Tensor, Tensor]:
        table = torch.full((len(pairs), context), PAD)
        for row, (first, second, _) in zip(table, pairs, strict=True):
            line = [FIRST, *numbers(first), SEPARATOR, *numbers(second)]
            row[: len(line)] = torch.tensor(line)
        return table, torch.tensor([label for _, _, label in pairs])

    def model() -> BERT:
        if arguments.quick:
            return BERT(size + 3, layers=2, width=64, heads=2, context=context)
        return BERT(size + 3, layers=4, width=128, heads=4, context=context)

    def correct(model: nn.Module, rows: tuple[Tensor, ...]) -> int:
        words, labels = rows
        return int((model.logits(words).argmax(1) == labels).sum())

    return Task(model, rows(training), rows(validation), batch=16, rate=2e-4, correct=correct)


if __name__ == "__main__":
    assert __doc__
    epochs.main(__doc__, make_task)
