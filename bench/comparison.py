"""Shared by the comparisons with other libraries: sizes, and the statistics of interleaved measurements."""

import random
import statistics
from collections.abc import Iterator


def to_bytes(text: str) -> int:
    """Parses "4096", "64K", "1M" or "2G"."""
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1].upper()] if text[-1].isalpha() else int(text)


def size_name(size: int) -> str:
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def sizes(least: str, largest: str) -> Iterator[int]:
    """From the least to the largest in steps of four."""
    size = to_bytes(least)
    while size <= to_bytes(largest):
        yield size
        size *= 4


def gigabits(rate: str) -> float:
    """ "1gbit" or "100mbit" in Gbit/s."""
    return float(rate.removesuffix("gbit")) if rate.endswith("gbit") else float(rate.removesuffix("mbit")) / 1000


def interval(values: list[float], draws: int = 1000) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """How many times longer theirs took: the median over pairs measured back to back, and its interval."""
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    low, high = interval(ratios)
    return {"ratio": statistics.median(ratios), "low": low, "high": high}
