"""A small GPT-2 whose ranks train alone and synchronise every H steps, as machines on slow lines do (docs/outer.md).

    qccl run -n 4 -- python examples/torch/outer_gpt2.py
    QCCL_LINK_RATE=50mbit torchrun --nproc-per-node 4 examples/torch/outer_gpt2.py --data input.txt --every 30

`qccl plan outer` says which --every, --fragments and --delay suit a line. Without --data it trains on a text that is
made up.
"""

import argparse

import torch
import torch.distributed as dist
from epochs import Vocabulary, load_words
from gpt2_wikitext2 import GPT2

import qccl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a text")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=12, help="steps between two rounds of a fragment")
    parser.add_argument("--fragments", type=int, default=2)
    parser.add_argument("--delay", type=int, default=2, help="steps in which a round is hidden")
    parser.add_argument("--blend", type=float, default=0.0, help="share of its own model that a rank keeps")
    parser.add_argument("--compression", default="int:bits=4")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("qccl")
    context, size = 32, 1000
    words, _ = load_words(arguments.data, byte_limit=250_000)
    numbers = torch.tensor(Vocabulary(words, size).numbers(words))
    torch.manual_seed(1)
    model = GPT2(size, layers=arguments.layers, width=arguments.width, heads=2, context=context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    outer = qccl.outer.OuterLoop(
        model,
        every=arguments.every,
        fragments=arguments.fragments,
        delay=arguments.delay,
        blend=arguments.blend,
        compression=arguments.compression,
        outer_optimizer=lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9, nesterov=True),
    )
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, arguments.steps + 1):
        starts = torch.randint(len(numbers) - context - 1, (16,), generator=generator)
        loss = model(torch.stack([numbers[start : start + context + 1] for start in starts]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outer.step()
        if step % arguments.every == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {mean.item():.4f}", flush=True)
    outer.finish()
    rounds = outer.stats()
    if dist.get_rank() == 0:
        sent = sum(each["bytes"] for each in rounds)
        gradients = 4 * sum(each.numel() for each in model.parameters()) * arguments.steps
        print(f"{len(rounds)} rounds, {sent / 1e6:.2f} MB sent; float32 gradients are {gradients / 1e6:.2f} MB")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
