"""Draws a log: the ranks' operations over time, latencies and bytes. Part of the qccl program, which runs it with a
trace on standard input and the picture's name as argument.
"""

import json
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

# Colour-blind safe (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
MOST_ROWS = 12  # of latencies and bytes: the kinds that took longest
USUAL_LETTERS, INCHES_A_LETTER = 28, 0.085  # of the latencies' labels; longer labels make the picture wider


def size_text(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.4g} {unit}"
        size /= 1024


def kind_text(name, size, codec):
    return f"{name}, {size_text(size)}" + ("" if codec == "none" else f", {codec}")


def share(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def draw_timeline(axes, events, colours):
    ranks = sorted({event["pid"] for event in events})
    rows, ticks = {}, []
    for rank in ranks:
        lanes = sorted({event["tid"] for event in events if event["pid"] == rank})
        for lane in lanes:
            rows[rank, lane] = len(rows)
        ticks.append((rows[rank, lanes[0]] + rows[rank, lanes[-1]]) / 2)
    for (rank, lane), row in rows.items():
        own = [event for event in events if (event["pid"], event["tid"]) == (rank, lane)]
        bars = [(event["ts"] / 1e3, event["dur"] / 1e3) for event in own]
        axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=[colours[event["name"]] for event in own])
    axes.set_yticks(ticks, [f"rank {rank}" for rank in ranks])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("ms since the first operation")


def by_kind(events):
    """The operations by name, size and codec, limited to the kinds that took longest."""
    kinds = defaultdict(list)
    for event in events:
        args = event["args"]
        kinds[event["name"], args["bytes"], args["compression"].partition(":")[0]].append(event)
    longest = sorted(kinds, key=lambda kind: -sum(event["dur"] for event in kinds[kind]))[:MOST_ROWS]
    return {kind: kinds[kind] for kind in sorted(longest)}


def draw_latencies(axes, kinds, colours):
    for row, ((name, *_), events) in enumerate(kinds.items()):
        ms = [event["dur"] / 1e3 for event in events]
        axes.plot([share(ms, 0.1), share(ms, 0.9)], [row, row], color=colours[name], linewidth=4, alpha=0.45)
        axes.plot([share(ms, 0.5)], [row], "o", color=colours[name], markersize=6)
        axes.plot([share(ms, 0.99)], [row], "|", color=colours[name], markersize=11)
    axes.set_yticks(range(len(kinds)), [kind_text(*kind) for kind in kinds])
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlabel("ms: 10 to 90 % (bar), half (dot), 99 % (tick)")


def draw_bytes(axes, kinds, colours):
    for row, ((name, *_), events) in enumerate(kinds.items()):
        sent = sum(event["args"]["wire_bytes"] for event in events) / len(events)
        plain = sum(event["args"]["plain_bytes"] for event in events) / len(events)
        axes.barh(row, plain / 1e6, height=0.7, color="none", edgecolor=colours[name], linewidth=1.2)
        axes.barh(row, sent / 1e6, height=0.7, color=colours[name])
    axes.set_yticks(range(len(kinds)), [""] * len(kinds))
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_xlabel("MB a rank sends for one (outline: uncompressed)")


def draw(document, path):
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    if not events:
        sys.exit("there is nothing in the log")
    names = list(dict.fromkeys(event["name"] for event in sorted(events, key=lambda event: event["ts"])))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    rows = len({(event["pid"], event["tid"]) for event in events})
    kinds = by_kind(events)
    heights = (max(1.2, 0.32 * rows), max(1.2, 0.32 * len(kinds)))
    label = max(len(kind_text(*kind)) for kind in kinds)
    width = 9 + INCHES_A_LETTER * max(0, label - USUAL_LETTERS)
    figure = pyplot.figure(figsize=(width, 1.8 + sum(heights)), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=heights)
    draw_timeline(figure.add_subplot(grid[0, :]), events, colours)
    draw_latencies(figure.add_subplot(grid[1, 0]), kinds, colours)
    draw_bytes(figure.add_subplot(grid[1, 1]), kinds, colours)
    for axes in figure.axes:
        axes.grid(alpha=0.25, axis="x")
        axes.spines[["top", "right"]].set_visible(False)
    patches = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=patches, loc="outside upper center", ncols=min(6, len(patches)), frameon=False)
    figure.savefig(path, dpi=130)


try:
    draw(json.load(sys.stdin), sys.argv[1])
except OSError as error:
    sys.exit(str(error))
