"""Draws the results of bench/predicted/compare.

predicted_plot.py RESULTS.json PICTURE.png      (with .venv's Python, which has matplotlib)
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.predicted.table import milliseconds  # noqa: E402


def draw_panel(panel: plt.Axes, rows: list[dict]) -> None:
    """Draws measured times along x, ratios along y, so that exact predictions lie on a horizontal line."""
    for collective in dict.fromkeys(row["case"]["collective"] for row in rows):
        for compression in dict.fromkeys(row["case"]["compression"] for row in rows):
            own = [row for row in rows if (row["case"]["collective"], row["case"]["compression"])
                   == (collective, compression)]  # fmt: skip
            if own:
                label = collective + ("" if compression == "none" else f", {compression}")
                ratios = [row["simulated"] / row["measured"] for row in own]
                panel.plot([row["measured"] for row in own], ratios, "o", label=label, markersize=5, alpha=0.7)
    panel.axhline(1, color="black", linewidth=0.8)
    panel.axhspan(1 / 1.15, 1.15, color="grey", alpha=0.15)
    panel.set_xscale("log")
    panel.set_ylim(0.6, 1.6)
    panel.xaxis.set_major_formatter(lambda value, _: f"{milliseconds(value)} ms")
    panel.set_title(f"{rows[0]['hosts']} hosts")
    panel.set_xlabel("measured")


def plot(rows: list[dict], path: Path) -> None:
    hosts = sorted({row["hosts"] for row in rows})
    figure, axes = plt.subplots(1, len(hosts), figsize=(5 * len(hosts), 4.5), sharey=True, squeeze=False)
    for panel, count in zip(axes[0], hosts, strict=True):
        draw_panel(panel, [row for row in rows if row["hosts"] == count])
    axes[0][0].set_ylabel("simulated / measured (band: 15 %)")
    axes[0][-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    plot(json.loads(Path(sys.argv[1]).read_text())["rows"], Path(sys.argv[2]))
