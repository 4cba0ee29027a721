"""plot.py RESULTS.json PICTURE.png: draws the results of bench/hosts/compare, with .venv's Python."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.panels import draw, draw_lines  # noqa: E402


def draw_panel(panel, line: str, rows: list[dict]) -> None:
    """Of the largest buffers."""
    largest = max(row["bytes"] for row in rows)
    draw_lines(panel, [row for row in rows if row["bytes"] == largest], "hosts", "multiples")
    panel.axhline(1, color="black", linewidth=0.7)
    name = line.replace("+uplink=holds", "\n+uplink=holds")
    panel.set_title(f"{name}, {largest / (1 << 20):g} MiB", fontsize=9)
    panel.set_xlabel("hosts")
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)


if __name__ == "__main__":
    draw(draw_panel, "time over bound")
