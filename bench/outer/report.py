"""The table and the picture of bench/outer/compare."""

import statistics
from collections import defaultdict
from pathlib import Path

from bench.outer.methods import BASE, METHODS

PICTURE_RATE = "50mbit"
CURVES = ("data parallel", "data parallel, 4 bits", "streaming 4 bits, H=30", "streaming 4 bits, H=100")


def by_method(rows: list[dict]) -> dict[str, list[dict]]:
    found = defaultdict(list)
    for row in rows:
        found[row["method"]].append(row)
    return found


def bytes_text(sent: float) -> str:
    return f"{sent / 1e6:.3g} MB" if sent >= 1e6 else f"{sent / 1e3:.3g} kB"


def loss_cells(rows: list[dict], base: list[dict]) -> list[str]:
    """The final loss, how much higher than data parallel with the same seed, bytes."""
    if not rows:
        return ["", "", ""]
    ends, base_ends = ({row["seed"]: row["losses"][-1][1] for row in each} for each in (rows, base))
    changes = [100 * (end / base_ends[seed] - 1) for seed, end in ends.items() if seed in base_ends]
    change = f"{statistics.mean(changes):+.2f} %" if changes else ""
    if len(changes) > 1:
        change += f" ({min(changes):+.2f}..{max(changes):+.2f})"
    sent = statistics.mean(row["bytes_a_step"] for row in rows)
    return [f"{statistics.mean(ends.values()):.4f}", "" if rows is base else change, bytes_text(sent)]


def time_cell(rows: list[dict], rate: str) -> str:
    """Seconds of a step, and the share of them in which a rank computes."""
    for row in rows:
        if row["rate"] == rate:
            return f"{row['seconds']:.3g} s, {100 * row['step_seconds'] / row['seconds']:.0f} %"
    return ""


def table(results: dict[str, list[dict]]) -> str:
    losses, times = by_method(results["losses"]), by_method(results["times"])
    rates = list(dict.fromkeys(row["rate"] for row in results["times"]))
    heads = ["method", "loss", "against data parallel", "bytes a rank a step", *rates]
    lines = [heads, ["---"] * len(heads)]
    for name in METHODS:
        if name in losses or name in times:
            cells = loss_cells(losses[name], losses[BASE])
            lines.append([name, *cells, *(time_cell(times[name], rate) for rate in rates)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw(results: dict[str, list[dict]], picture: Path) -> None:
    """Losses against the seconds that so many steps take on the line; means over the seeds."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as pyplot

    losses = by_method(results["losses"])
    seconds = {row["method"]: row["seconds"] for row in results["times"] if row["rate"] == PICTURE_RATE}
    # All methods begin with the same data parallel steps, which are left out.
    warm_up = max((row["warm_up"] for row in results["losses"]), default=0)
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name in CURVES:
        if name not in seconds or name not in losses:
            continue
        points = zip(*(row["losses"] for row in losses[name]), strict=True)
        curve = [(point[0][0], statistics.mean(loss for _, loss in point)) for point in points]
        curve = [((step - warm_up) * seconds[name], loss) for step, loss in curve if step >= warm_up]
        axes.plot(*zip(*curve, strict=True), marker=".", label=name)
    axes.set_xscale("log")
    axes.set_xlabel(f"seconds after the warm-up, at {PICTURE_RATE.removesuffix('mbit')} Mbit/s")
    axes.set_ylabel("loss on held-out text")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False, loc="lower left")
    figure.savefig(picture, dpi=110)
