"""This process's counters as flat numbers, for TensorBoard, W&B and the like."""

import json
from collections import defaultdict
from typing import Any

from . import _C


def scalars(prefix: str = "qccl/") -> dict[str, float]:
    """This rank's counters since it joined, over all its open groups; empty without any, and cheap: no peer is asked.

        for name, value in qccl.scalars().items():
            writer.add_scalar(name, value, step)         # torch.utils.tensorboard
        wandb.log(qccl.scalars(), step=step)

    | name, after the prefix | meaning |
    |---|---|
    | calls, failures | calls that ended well, and that did not |
    | input_bytes | of their inputs |
    | sent_bytes, saved_bytes | what this rank sent, with headers, and what compression saved it to send |
    | compression_ratio | uncompressed size over the size sent; 1 if nothing was sent |
    | busy_seconds, busy_share | time with at least one call under way, and its share of the time since the start |
    | resent_packets | of TCP, sent again |
    | oldest_call_seconds | age of the oldest call that has not ended; 0 if there is none |
    | warnings | how many there are at present |
    | all_reduce/calls, .../input_bytes, .../seconds, .../compression_ratio | the same for each operation called |

    Counters only grow while a group is open, so differences between steps are what the steps did.
    """
    ranks = [json.loads(text) for text in _C.status_of_process()]
    if not ranks:
        return {}
    kinds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for counters in (each for rank in ranks for each in rank["counters"]):
        for field in ("calls", "failures", "bytes", "payload_bytes", "plain_bytes", "seconds"):
            kinds[counters["operation"]][field] += counters[field]
    values = _of_process(ranks, kinds)
    for operation, sums in sorted(kinds.items()):
        values[f"{operation}/calls"] = sums["calls"]
        values[f"{operation}/input_bytes"] = sums["bytes"]
        values[f"{operation}/seconds"] = sums["seconds"]
        values[f"{operation}/compression_ratio"] = _ratio(sums["plain_bytes"], sums["payload_bytes"])
    return {prefix + name: float(value) for name, value in values.items()}


def _of_process(ranks: list[dict[str, Any]], kinds: dict[str, dict[str, float]]) -> dict[str, float]:
    def total(field: str) -> float:
        return sum(sums[field] for sums in kinds.values())

    def summed(field: str) -> float:
        return sum(float(rank[field]) for rank in ranks)

    return {
        "calls": total("calls"),
        "failures": total("failures"),
        "input_bytes": total("bytes"),
        "sent_bytes": summed("sent_bytes"),
        "saved_bytes": summed("saved_bytes"),
        "compression_ratio": _ratio(total("plain_bytes"), total("payload_bytes")),
        "busy_seconds": summed("busy_seconds"),
        "busy_share": summed("busy_seconds") / max(summed("seconds"), 1e-9),
        "resent_packets": summed("resent_packets"),
        "oldest_call_seconds": max([call["seconds"] for rank in ranks for call in rank["calls"]], default=0.0),
        "warnings": sum(len(rank["warnings"]) for rank in ranks),
    }


def _ratio(plain: float, sent: float) -> float:
    return plain / sent if sent > 0 else 1.0
