"""The results of bench/peers/compare as a table and a picture.

peers_report.py RESULTS.json PICTURE.png      draws the picture (with .venv's Python, which has matplotlib)
"""

import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.comparison import ratio, size_name  # noqa: E402
from bench.peers.contestants import is_qccl  # noqa: E402


def add_ratios(row: dict) -> None:
    """Adds to a size's row, which has {"seconds": {contestant: value of each round}}, medians, best peer and ratios."""
    row["microseconds"] = {name: 1e6 * statistics.median(values) for name, values in row["seconds"].items()}
    ours = [name for name in row["seconds"] if is_qccl(name)]
    peers = [name for name in row["seconds"] if not is_qccl(name)]
    row["ratios"] = {our: {peer: ratio(row["seconds"][our], row["seconds"][peer]) for peer in peers} for our in ours}
    row["best_peer"] = min(peers, key=lambda name: row["microseconds"][name]) if peers else None


def time_text(microseconds: float) -> str:
    return f"{microseconds:.2f}" if microseconds < 10 else f"{microseconds:.0f}"


def table(rows: list[dict]) -> str:
    """Markdown: each one's microseconds; for QCCL also the best peer's time over its own, with the 95 % interval."""
    names = list(rows[0]["seconds"])
    peers = [name for name in names if not is_qccl(name)]
    ours = [name for name in names if is_qccl(name)]
    head = ["bytes", *peers]
    for name in ours:
        head += [name] + ([f"best / {name}"] if peers else [])
    lines = [head, ["---"] * len(head)]
    for row in rows:
        cells = [size_name(row["bytes"]), *(time_text(row["microseconds"][name]) for name in peers)]
        for name in ours:
            cells.append(time_text(row["microseconds"][name]))
            if peers:
                best = row["ratios"][name][row["best_peer"]]
                cells.append(f"**{best['ratio']:.2f}** ({best['low']:.2f}..{best['high']:.2f}) {row['best_peer']}")
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cases(rows: list[dict]) -> Iterable[tuple[tuple[str, int], list[dict]]]:
    """Rows by (network, ranks), in the order they were measured."""
    keys = dict.fromkeys((row["network"], row["ranks"]) for row in rows)
    return [(key, [row for row in rows if (row["network"], row["ranks"]) == key]) for key in keys]


def plot(rows: list[dict], path: Path) -> None:
    """Draws microseconds against bytes, a panel for each network and number of ranks."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as pyplot

    networks = list(dict.fromkeys(row["network"] for row in rows))
    ranks = list(dict.fromkeys(row["ranks"] for row in rows))
    names = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    figure, axes = pyplot.subplots(len(ranks), len(networks), squeeze=False, sharex=True,
                                   figsize=(1.5 + 3.6 * len(networks), 1 + 3.2 * len(ranks)))
    for (network, world), group in cases(rows):
        panel = axes[ranks.index(world)][networks.index(network)]
        for index, name in enumerate(names):
            points = [(row["bytes"], row["microseconds"][name]) for row in group if name in row["seconds"]]
            if points:
                panel.loglog(*zip(*points, strict=True), color=f"C{index}", marker=".", label=name,
                             linewidth=2 if is_qccl(name) else 1)
        panel.set_title(f"{network}, {world} ranks", fontsize=10)
        panel.grid(alpha=0.3)
    labelled = [zip(*panel.get_legend_handles_labels(), strict=True) for panel in axes.flat]
    handles = {label: line for pairs in labelled for line, label in pairs}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=len(handles), fontsize=9, frameon=False)
    figure.supxlabel("bytes", y=0.07, fontsize=10)
    figure.supylabel("microseconds of one call", fontsize=10)
    figure.tight_layout(rect=(0.02, 0.08, 1, 1))
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    plot(json.loads(Path(sys.argv[1]).read_text())["rows"], Path(sys.argv[2]))
