"""Draws the pictures of `qccl codec bench`, `qccl perf` and `qccl log plot`. Part of the qccl program, which runs it
with a report on standard input and, as arguments, the kind of picture and its file.
"""

import json
import re
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

# Colour-blind safe (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
MARKERS = "osD^vPX*"
MOST_ROWS = 12  # of latencies and bytes: the kinds that took longest
DEFAULT_LETTERS, INCHES_A_LETTER = 28, 0.085  # of the latencies' labels; longer labels make the picture wider


def size_text(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.4g} {unit}"
        size /= 1024


def style(index):
    return {"color": COLOURS[index % 8], "marker": MARKERS[index % 8]}


def finish(figure, path, grid_axis="both"):
    for axes in figure.axes:
        axes.grid(alpha=0.25, axis=grid_axis)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


# ---- qccl codec bench: error against bits per element, a panel for each data set


def codec_curves(report, index):
    """Points (bits, NMSE) of each lossy codec, by name."""
    found = defaultdict(list)
    for codec in report["codecs"]:
        data = codec["data"][index]
        if data["nmse"] > 0:
            found[codec["name"]].append((data["bits"], data["nmse"]))
    return found


def draw_codec(report, path):
    names = [data["name"] for data in report["codecs"][0]["data"]]
    styles = {name: style(i) for i, name in enumerate(dict.fromkeys(codec["name"] for codec in report["codecs"]))}
    figure, panels = pyplot.subplots(
        1, len(names), figsize=(1 + 3.4 * len(names), 4), sharey=True, squeeze=False, layout="constrained"
    )
    handles = {}
    for index, (name, axes) in enumerate(zip(names, panels[0], strict=True)):
        for codec, points in codec_curves(report, index).items():
            bits, errors = zip(*sorted(points), strict=True)
            axes.plot(bits, errors, label=codec, markersize=5, linewidth=1.2, **styles[codec])
        if name == "gauss":  # no code can be better: D(R) = 4^-R
            axes.plot((1, 8), (4**-1, 4**-8), color="#bbbbbb", linestyle=":", label="limit for Gauss")
        axes.set_yscale("log")
        axes.set_xscale("log", base=2)
        axes.set_xticks((1, 2, 4, 8, 16), ("1", "2", "4", "8", "16"))
        axes.set_xlabel("bits an element")
        axes.set_title(name)
        handles.update({label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)})
    panels[0][0].set_ylabel("NMSE of one encoding")
    figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False)
    finish(figure, path)


# ---- qccl perf: bandwidth against size, a line for each codec


def perf_curves(results):
    """{label: {size: bandwidths}} of out-of-place runs. A label is a codec, and type, operation, root if they vary."""
    apart = [key for key in ("dtype", "op", "root") if len({entry[key] for entry in results}) > 1]
    found = defaultdict(lambda: defaultdict(list))
    for entry in results:
        if not entry["in_place"] and entry["bytes"] > 0:
            codec = entry["asked_compression"] or results[-1]["compression"]
            label = ", ".join([codec, *(f"{key} {entry[key]}" for key in apart)])
            found[label][entry["bytes"]].append(entry["busbw_GBps"])
    return found


def draw_perf(document, path):
    results, header = document["results"], document["header"]
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for index, (label, points) in enumerate(perf_curves(results).items()):
        sizes = sorted(points)
        means = [sum(points[size]) / len(points[size]) for size in sizes]
        axes.plot(sizes, means, label=label, markersize=4, linewidth=1.4, **style(index))
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
    axes.legend(frameon=False)
    finish(figure, path)


# ---- qccl log plot: the ranks' operations over time, latencies and bytes


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
    axes.set_xlabel("MB sent by each rank in one operation (outline: uncompressed)")


ROUND_PANELS = (
    ("MB sent by a rank in a round", lambda each: each["bytes"] / 1e6, "-"),
    ("seconds waited in a round", lambda each: each["seconds_waited"], "-"),
    ("% of the time computing", lambda each: 100 * (1 - each["seconds_waited"] / (each["seconds"] or 1)), "-"),
    ("norm: delta", lambda each: each["delta_norm"], "-"),
    ("residual (dashed)", lambda each: each["residual_norm"], "--"),
)


def draw_rounds(panels, rounds):
    """A line for each rank and fragment over the steps; norms share the last panel."""
    lines = defaultdict(list)
    for event in rounds:
        lines[event["pid"], event["args"]["fragment"]].append(event["args"])
    ranks = sorted({rank for rank, _ in lines})
    for index, (label, value, dashes) in enumerate(ROUND_PANELS):
        axes = panels[min(index, len(panels) - 1)]
        for (rank, _), own in lines.items():
            points = [(each["step"], value(each)) for each in own if None not in each.values()]
            axes.plot(*zip(*points, strict=True), dashes, color=COLOURS[ranks.index(rank) % 8], marker=".", linewidth=1)
        axes.set_xlabel("step")
        axes.set_ylabel(", ".join(filter(None, [axes.get_ylabel(), label])))
    for axes in panels:
        axes.set_ylim(bottom=0)
    panels[2].set_ylim(top=102)
    handles = [Patch(color=COLOURS[place % 8], label=f"rank {rank}") for place, rank in enumerate(ranks)]
    panels[0].legend(handles=handles[:8], frameon=False)


GAUGE_PANELS = (
    ("bits", "bits an element"),
    ("nmse", "NMSE of one encoding"),
    ("cosine", "cosine"),
    ("residual", "residual over gradient"),
)
MOST_GAUGED = 8  # parameters: the largest


def draw_gauges(panels, gauges):
    """A line for each of the largest parameters over the steps, as the first rank that measured saw it."""
    rank = min(event["pid"] for event in gauges)
    lines = defaultdict(list)
    for event in gauges:
        if event["pid"] == rank:
            lines[event["args"]["name"]].append(event["args"])
    largest = sorted(lines, key=lambda name: -lines[name][0]["count"])[:MOST_GAUGED]
    for (quantity, label), axes in zip(GAUGE_PANELS, panels, strict=True):
        for index, name in enumerate(largest):
            points = [(each["step"], each[quantity]) for each in lines[name] if each[quantity] is not None]
            axes.plot(*zip(*points, strict=True), label=name, markersize=3, linewidth=1, **style(index))
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    panels[0].legend(frameon=False, fontsize="small", title=f"gradients of rank {rank}", title_fontsize="small")


def draw_log(document, path):
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    rounds = [event for event in document["traceEvents"] if event.get("cat") == "qccl round"]
    gauges = [event for event in document["traceEvents"] if event.get("cat") == "qccl gauge"]
    if not events:
        sys.exit("there is nothing in the log")
    for event in events:  # one kind for all rounds of a fragment
        event["name"] = re.sub(r"^outer round \d+ fragment", "outer round, fragment", event["name"])
    names = list(dict.fromkeys(event["name"] for event in sorted(events, key=lambda event: event["ts"])))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    rows = len({(event["pid"], event["tid"]) for event in events})
    kinds = by_kind(events)
    heights = [max(1.2, 0.32 * rows), max(1.2, 0.32 * len(kinds))]
    further = [(draw, events) for draw, events in ((draw_rounds, rounds), (draw_gauges, gauges)) if events]
    heights += [2.6, 2.6] * len(further)
    label = max(len(kind_text(*kind)) for kind in kinds)
    width = 9 + INCHES_A_LETTER * max(0, label - DEFAULT_LETTERS)
    figure = pyplot.figure(figsize=(width, 1.8 + sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    draw_timeline(figure.add_subplot(grid[0, :]), events, colours)
    draw_latencies(figure.add_subplot(grid[1, 0]), kinds, colours)
    draw_bytes(figure.add_subplot(grid[1, 1]), kinds, colours)
    for index, (draw, of_kind) in enumerate(further):
        rows_of_kind = (2 + 2 * index, 3 + 2 * index)
        draw([figure.add_subplot(grid[row, column]) for row in rows_of_kind for column in (0, 1)], of_kind)
    patches = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=patches, loc="outside upper center", ncols=min(6, len(patches)), frameon=False)
    finish(figure, path, grid_axis="x")


kind, target = sys.argv[1:]
try:
    {"codec": draw_codec, "perf": draw_perf, "log": draw_log}[kind](json.load(sys.stdin), target)
except OSError as error:
    sys.exit(str(error))
