"""Draws bandwidth against size, a line for each codec. Part of the qccl program, which runs it with the JSON of
`qccl perf` on standard input and the picture's name as argument.
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


def size_text(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:g} {unit}"
        size /= 1024


def curves(results):
    """{label: {size: bandwidths}} of out-of-place runs. A label is a codec, and type, operation, root if they vary."""
    apart = [key for key in ("dtype", "op", "root") if len({entry[key] for entry in results}) > 1]
    found = defaultdict(lambda: defaultdict(list))
    for entry in results:
        if not entry["in_place"] and entry["bytes"] > 0:
            codec = entry["asked_compression"] or results[-1]["compression"]
            label = ", ".join([codec, *(f"{key} {entry[key]}" for key in apart)])
            found[label][entry["bytes"]].append(entry["busbw_GBps"])
    return found


def draw(document, path):
    results, header = document["results"], document["header"]
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for place, (label, points) in enumerate(curves(results).items()):
        sizes = sorted(points)
        style = {"color": COLOURS[place % 8], "marker": MARKERS[place % 8]}
        means = [sum(points[size]) / len(points[size]) for size in sizes]
        axes.plot(sizes, means, label=label, markersize=4, linewidth=1.4, **style)
    ticks = sorted({entry["bytes"] for entry in results if entry["bytes"] > 0})
    ticks = ticks[:: max(1, (len(ticks) + 9) // 10)]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [size_text(size) for size in ticks], rotation=30)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("size")
    axes.set_ylabel("bus bandwidth (GB/s), as if uncompressed")
    link = header["options"]["link_rate"]
    paced = f", {link} a rank" if link else ""
    axes.set_title(f"{results[0]['collective']}, {header['ranks']} ranks{paced}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=130)


try:
    draw(json.load(sys.stdin), sys.argv[1])
except OSError as error:
    sys.exit(str(error))
