"""plot.py RESULTS.json PICTURE.png: draws the results of bench/hosts/compare, with .venv's Python."""

import json
import sys

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as pyplot  # noqa: E402


def main() -> None:
    results, picture = sys.argv[1:]
    with open(results) as file:
        rows = json.load(file)
    lines = list(dict.fromkeys(row["line"] for row in rows))
    largest = max(row["bytes"] for row in rows)
    figure, axes = pyplot.subplots(1, len(lines), sharey=True, squeeze=False, figsize=(3.6 * len(lines), 3.6))
    for panel, line in zip(axes[0], lines, strict=True):
        of_line = [row for row in rows if row["line"] == line and row["bytes"] == largest]
        for name in of_line[0]["multiples"]:
            points = [(row["hosts"], row["multiples"][name]) for row in of_line]
            panel.plot(*zip(*points, strict=True), marker=".", label=name, linewidth=2 if "qccl" in name else 1)
        panel.axhline(1, color="black", linewidth=0.7)
        panel.set_title(line.replace("+uplink=holds", "\n+uplink=holds"), fontsize=9)
        panel.set_xlabel("hosts")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.grid(alpha=0.3)
    axes[0][0].set_ylabel(f"time over bound, {largest >> 20} MiB")
    axes[0][0].set_ylim(bottom=0)
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="lower center", ncol=len(handles[1]), fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(picture, dpi=130)


if __name__ == "__main__":
    main()
