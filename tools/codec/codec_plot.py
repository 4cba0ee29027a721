"""Draws error against bits per element, a panel for each data set. Part of the qccl program, which runs it with
its report on standard input and the picture's name as argument.
"""

import json
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

# Colour-blind safe (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
MARKERS = "osD^vPX*"


def curves(report, place):
    """Points (bits, NMSE) of each lossy codec, by name."""
    found = defaultdict(list)
    for codec in report["codecs"]:
        data = codec["data"][place]
        if data["nmse"] > 0:
            found[codec["name"]].append((data["bits"], data["nmse"]))
    return found


def draw(report, path):
    names = [data["name"] for data in report["codecs"][0]["data"]]
    styles = {name: i for i, name in enumerate(dict.fromkeys(codec["name"] for codec in report["codecs"]))}
    figure, panels = pyplot.subplots(
        1, len(names), figsize=(1 + 3.4 * len(names), 4), sharey=True, squeeze=False, layout="constrained"
    )
    for place, (name, axes) in enumerate(zip(names, panels[0], strict=True)):
        for codec, points in curves(report, place).items():
            bits, errors = zip(*sorted(points), strict=True)
            style = {"color": COLOURS[styles[codec] % 8], "marker": MARKERS[styles[codec] % 8]}
            axes.plot(bits, errors, label=codec, markersize=5, linewidth=1.2, **style)
        if name == "gauss":  # no code can be better: D(R) = 4^-R
            axes.plot((1, 8), (4**-1, 4**-8), color="#bbbbbb", linestyle=":", label="limit for Gauss")
        axes.set_yscale("log")
        axes.set_xscale("log", base=2)
        axes.set_xticks((1, 2, 4, 8, 16), ("1", "2", "4", "8", "16"))
        axes.set_xlabel("bits an element")
        axes.set_title(name)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("NMSE of one encoding")
    handles = {}
    for axes in panels[0]:
        handles.update({label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)})
    figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False)
    figure.savefig(path, dpi=130)


try:
    draw(json.load(sys.stdin), sys.argv[1])
except OSError as error:
    sys.exit(str(error))
