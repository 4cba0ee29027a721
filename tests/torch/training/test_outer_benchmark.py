"""bench/outer/compare: its table, and a short run of both measurements."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))
from bench.outer.methods import METHODS  # noqa: E402
from bench.outer.report import table  # noqa: E402

WAN = ROOT / "scripts" / "wan.sh"
DEADLINE = 240  # seconds


def trained(method: str, seed: int, loss: float, sent: float) -> dict:
    return {"method": method, "seed": seed, "losses": [[0, 5.0], [10, loss]], "bytes_a_step": sent, "warm_up": 0}


def test_table_has_losses_against_data_parallel_of_the_same_seed_and_each_line():
    losses = [trained("data parallel", 1, 2.0, 6e4), trained("data parallel", 2, 4.0, 6e4)]
    losses += [trained("DiLoCo, H=30", 1, 2.1, 2e3), trained("DiLoCo, H=30", 2, 4.0, 2e3)]
    times = [{"method": "torchft DiLoCo, H=100", "rate": "50mbit", "seconds": 0.4, "step_seconds": 0.1}]
    times += [{"method": "DiLoCo, H=30", "rate": "1gbit", "seconds": 0.125, "step_seconds": 0.1}]
    lines = table({"losses": losses, "times": times}).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[0].endswith("| bytes a rank a step | 50mbit | 1gbit |")
    assert lines[2] == "| data parallel | 3.0000 |  | 60 kB |  |  |"
    assert lines[3] == "| DiLoCo, H=30 | 3.0500 | +2.50 % (+0.00..+5.00) | 2 kB |  | 0.125 s, 80 % |"
    assert lines[4] == "| torchft DiLoCo, H=100 |  |  |  | 0.4 s, 25 % |  |"


def run_compare(folder, *flags):
    files = ["--json", folder / "outer.json", "--page", folder / "page.md", "--picture", folder / "outer.png"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("QCCL_")}
    return subprocess.run(
        [ROOT / "bench/outer/compare", "--quick", "--ranks", "2", *files, *flags],
        env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip


def compare(folder, *flags):
    done = run_compare(folder, *flags)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "outer.json").read_text())


def test_ranks_that_synchronise_send_a_fraction_and_learn(tmp_path):
    methods = ["data parallel", "streaming 4 bits, H=30"]
    rows = compare(tmp_path, "--only", "losses", "--methods", *methods)["losses"]
    assert [row["method"] for row in rows] == methods
    assert all(row["losses"][-1][1] < row["losses"][0][1] - 0.2 for row in rows)
    assert rows[1]["bytes_a_step"] < rows[0]["bytes_a_step"] / 50
    assert rows[0]["losses"][:7] == rows[1]["losses"][:7]  # the steps of the warm-up
    again = ("--methods", *methods, "--go-on")
    assert compare(tmp_path, "--only", "losses", *again)["losses"] == rows
    for flags, change in [
        (("--only", "losses", "--steps", "61"), "steps was 60, is 61"),
        (("--only", "times", "--shape", "1", "16", "2", "32"), "shape was [1, 32, 2, 32], is [1, 16, 2, 32]"),
    ]:
        refused = run_compare(tmp_path, *again, *flags)
        assert refused.returncode == 1 and change in refused.stderr
    assert json.loads((tmp_path / "outer.json").read_text())["losses"] == rows


def test_a_line_slows_data_parallel_ranks_more(tmp_path):
    check = subprocess.run([WAN, "check"], capture_output=True, text=True, timeout=DEADLINE)
    if check.returncode != 0:
        pytest.skip(check.stderr.strip())
    methods = ["data parallel", "streaming 4 bits, H=30"]
    rows = compare(tmp_path, "--only", "times", "--methods", *methods)["times"]
    seconds = {row["method"]: row["seconds"] for row in rows}
    assert set(seconds) == set(methods)
    # Gradients are there from a third of the step on, and take a round trip at least.
    assert seconds["data parallel"] > 0.02 / 3 + 0.04
    assert 0.02 <= seconds["streaming 4 bits, H=30"] < seconds["data parallel"]
    assert set(METHODS) > set(methods)
