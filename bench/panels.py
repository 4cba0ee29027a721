"""A picture with a panel for each line, which the comparisons between hosts share. Needs .venv's Python."""

import json
import sys
from collections.abc import Callable

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402


def draw_lines(panel: Axes, rows: list[dict], x: str, y: str) -> None:
    """A curve for each contestant: row[y][contestant] over row[x]."""
    for name in rows[0][y]:
        points = [(row[x], row[y][name]) for row in rows]
        panel.plot(*zip(*points, strict=True), marker=".", label=name, linewidth=2 if "qccl" in name else 1)


def draw(draw_panel: Callable[[Axes, str, list[dict]], None], y_label: str) -> None:
    """Reads the rows of the file that the command line names and draws the picture that it names: a panel for each
    row["line"]."""
    results, picture = sys.argv[1:]
    with open(results) as file:
        rows = json.load(file)
    lines = list(dict.fromkeys(row["line"] for row in rows))
    figure, axes = pyplot.subplots(1, len(lines), sharey=True, squeeze=False, figsize=(3.6 * len(lines), 3.6))
    for panel, line in zip(axes[0], lines, strict=True):
        draw_panel(panel, line, [row for row in rows if row["line"] == line])
    axes[0][0].set_ylabel(y_label)
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="lower center", ncol=len(handles[1]), fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(picture, dpi=130)
