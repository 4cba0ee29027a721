"""plot.py RESULTS.json PICTURE.png: draws the results of bench/distance/compare, with .venv's Python."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.panels import draw, draw_lines  # noqa: E402


def draw_panel(panel, line: str, rows: list[dict]) -> None:
    draw_lines(panel, rows, "delay_ms", "ms")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_title(line, fontsize=10)
    panel.set_xlabel("milliseconds one way")
    panel.grid(alpha=0.3, which="both")


if __name__ == "__main__":
    draw(draw_panel, "milliseconds of one all_reduce")
