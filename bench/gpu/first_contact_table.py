"""The table of a first contact with a GPU (scripts/first_contact.py): how the steps ended, then figures."""

from typing import Any

from bench.comparison import size_name
from bench.gpu.steps import FAILED, LEFT_OUT, OK, Result, last_line

PASSES = ("encode", "reduce", "decode")


def text(results: list[Result]) -> str:
    sections = [make(results) for make in (endings, tests_left_out, torch_tests, kernels, ranks, gates, training)]
    return "\n".join(section for section in sections if section)


def of(results: list[Result], part: str) -> list[Result]:
    """Those of the part that have figures."""
    return [result for result in results if result.part == part and result.document]


def endings(results: list[Result]) -> str:
    """A line for each part, and for each step that did not end well; one for all that were left out for one reason."""
    lines = []
    for part in dict.fromkeys(result.part for result in results):
        own = [result for result in results if result.part == part]
        ends = [result.outcome for result in own]
        counts = [f"{count} {outcome}" for outcome in (OK, FAILED, LEFT_OUT) if (count := ends.count(outcome))]
        lines.append(f"{part:12}{', '.join(counts)}, {sum(result.seconds for result in own):.1f} s")
        lines += [f"  {result.outcome}: {result.name}: {result.why}" for result in own if result.outcome == FAILED]
        left_out: dict[str, list[str]] = {}
        for result in own:
            if result.outcome == LEFT_OUT:
                left_out.setdefault(result.why, []).append(result.name)
        lines += [f"  left out {why}: {', '.join(names)}" for why, names in left_out.items()]
    return "\n".join(lines) + "\n" if lines else ""


def tests_left_out(results: list[Result]) -> str:
    """Of the tests of tests/gpu how many ran, and why each other one did not."""
    documents = [result.document for result in of(results, "tests")]
    passed = {name for document in documents for name in document["passed"]}
    failed = {name for document in documents for name in document["failed"]} - passed
    left_out = {name: reason for document in documents for name, reason in document["left_out"].items()}
    if not documents:
        return ""
    lines = [f"tests: {len(passed)} passed, {len(failed)} failed, {len(left_out)} left out"]
    return "\n".join(lines + [f"  left out: {name}: {reason}" for name, reason in left_out.items()]) + "\n"


def torch_tests(results: list[Result]) -> str:
    """What pytest said of each file at its end."""
    own = [result for result in results if result.part == "torch" and result.output]
    return "".join(f"  {result.name}: {last_line(result.output)}\n" for result in own)


def kernels(results: list[Result]) -> str:
    """A line for each format: GB/s with each number of blocks, and the share of a copy with the most of them."""
    lines = []
    for document in (result.document for result in of(results, "figures")):
        rows = {row["pass"]: row for row in document["kernels"] if "GBps" in row}
        for name, row in rows.items():
            if not lines:
                blocks = " ".join(key.split("_")[1] for key in row if key.startswith("GBps_"))
                lines.append(f"GB/s with {blocks} blocks (share of a copy on the device)")
            if name == PASSES[0]:
                lines.append(f"  {row['format']:31}" + "  ".join(rates(rows[each]) for each in PASSES if each in rows))
        for place in ("pinned", "registration"):
            for way in ("read", "write"):
                if row := document.get(place, {}).get(way):
                    lines.append(f"  {place} {way}: {rates(row)} of the copy engine")
    for document in (result.document for result in of(results, "doctor")):
        lines += [f"calls, us: {name} {value}" for name, value in document.get("calls_us", {}).items()]
        lines += [f"{name}: {value}" for name, value in document.get("copy", {}).items() if name != "bytes"]
    return "\n".join(lines) + "\n" if lines else ""


def rates(row: dict[str, Any]) -> str:
    name = row.get("pass", "")
    share = row.get("share_of_copy", row.get("share_of_copy_engine", 0))
    figures = "/".join(f"{value:.3g}" for key, value in row.items() if key.startswith("GBps_"))
    return f"{name} {figures} ({100 * share:.0f} %)".strip()


def ranks(results: list[Result]) -> str:
    """The largest call of each kind that was measured."""
    lines = []
    for document in (result.document for result in of(results, "ranks")):
        rows = document.get("rows") or []
        largest = max((row["bytes"] for row in rows), default=0)
        for row in rows:
            if row["bytes"] == largest:
                what = f"{row['ranks']} ranks, {row['collective']} of {size_name(row['bytes'])}, {row['compression']}"
                share = f"{100 * row['share_of_bound']:.0f} % of the link's bound"
                lines.append(f"  {what}: {row['us']} us, {row['algbw_GBps']} GB/s, {share}")
    return "\n".join(["ranks", *lines]) + "\n" if lines else ""


def gates(results: list[Result]) -> str:
    waits = {"gate": "streams wait", "host": "the host waits"}
    lines = [f"  {result.name}: {waits[result.document['order']]}" for result in of(results, "gates")]
    return "\n".join(["gates", *lines]) + "\n" if lines else ""


def training(results: list[Result]) -> str:
    lines = [
        f"  {result.name}, {row['compression']}: {row['ms']:.1f} ms a step"
        for result in of(results, "ddp")
        for row in result.document
    ]
    return "\n".join(["training", *lines]) + "\n" if lines else ""
