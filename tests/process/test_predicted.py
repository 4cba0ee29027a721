"""bench/predicted/compare: the outputs it parses, its tolerance check, and one comparison end to end."""

import json
import subprocess
import sys

import pytest
from program import DEADLINE, ROOT, algorithms, environment, run

sys.path.insert(0, str(ROOT))
from bench.predicted.table import (  # noqa: E402
    Case,
    Row,
    beyond,
    read_prices,
    read_simulation,
    table,
    undisturbed,
    verdict,
)

NETNS = ROOT / "scripts" / "netns.sh"
LAYOUT = ("--world", 4, "--rate", "1gbit", "--burst", "64K", "--cores", 2, "--hosts-per-machine", 4)


def row(simulated: float, measured: float = 0.1, algorithm: str = "sra") -> Row:
    case = Case("all_reduce", algorithm, "minmax:bits=4", 1 << 20)
    return Row(4, case, algorithm == "sra", measured, simulated, 0.12)


def test_simulated_times_and_the_choice_are_read_from_the_program():
    done = run("plan", "simulate", "all_reduce", *LAYOUT, "-b", "1M", "-e", "4M")
    found = read_simulation(done.stdout)
    assert {size for size, _ in found} == {1 << 20, 4 << 20}
    assert {name for _, name in found} == set(algorithms("all_reduce"))
    assert [key for key, (_, is_chosen) in found.items() if is_chosen] == [(1 << 20, "ring"), (4 << 20, "sra")]
    least = 1.5 * (4 << 20) / 125e6
    assert least < found[4 << 20, "sra"][0] < 1.3 * least


def test_prices_are_read_from_the_program():
    done = run("plan", "show", "all_reduce", *LAYOUT, "--bytes", "4M")
    prices = read_prices(done.stdout)
    assert set(prices) == set(algorithms("all_reduce"))
    assert 1.5 * (4 << 20) / 125e6 < prices["sra"][0] < prices["one_shot"][0]
    assert {name for name, (_, may_be_chosen) in prices.items() if may_be_chosen} == {"sra", "ring", "tree"}


def test_rows_beyond_the_tolerance_are_counted_and_the_worst_is_named():
    rows = [row(0.11), row(0.086, algorithm="ring"), row(0.084, algorithm="tree")]
    assert [each.case.algorithm for each in beyond(rows, 0.15)] == ["tree"]
    said = verdict(rows, 0.15)
    assert "3 predictions; the worst is all_reduce/tree/minmax:bits=4/1048576 on 4 hosts" in said
    assert "84 ms simulated, 100 ms measured; 1 beyond 15 %" in said


def test_table_has_a_line_for_each_with_both_ratios():
    lines = table([row(0.11), row(0.0901, algorithm="ring")]).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2] == "| 4 | all_reduce | minmax:bits=4 | 1 MiB | sra* | 100 | 110 | 1.10 | 120 | 1.20 |"
    assert lines[3] == "| 4 | all_reduce | minmax:bits=4 | 1 MiB | ring | 100 | 90.1 | 0.90 | 120 | 1.20 |"


def test_samples_during_which_cores_were_taken_away_do_not_count_unless_there_are_too_few_others():
    calm = [[0.010, 0], [0.011, 0], [0.012, 0], [1.0, 2]]
    assert sorted(undisturbed([*calm, [0.030, 3], [2.0, 20]], cores=2, ticks_a_second=100)) == [0.01, 0.011, 0.012, 1]
    assert undisturbed([[0.1, 9], [0.2, 1], [0.3, 60], [0.4, 50]], cores=2, ticks_a_second=100) == [0.2, 0.1, 0.4]


def clusters() -> str:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    return "\n".join(line for line in listed.stdout.splitlines() if line.startswith("peers"))


# Only a quiet machine can show how close they are. This test checks only the order of magnitude.
def test_measured_and_predicted_stand_side_by_side_and_nothing_is_left_behind(tmp_path):
    check = subprocess.run([NETNS, "check"], capture_output=True, text=True)
    if check.returncode != 0:
        pytest.skip(check.stderr.strip())
    before = clusters()
    few = ["--hosts", "2", "--min-bytes", "1M", "--max-bytes", "1M", "--samples", "3", "--rounds", "1"]
    few += ["--tolerance", "900"]
    files = ["--json", tmp_path / "predicted.json", "--plot", tmp_path / "predicted.png"]
    done = subprocess.run(
        [ROOT / "bench/predicted/compare", *few, *files, "--collectives", "all_reduce", "--compressions", "none"],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    rows = json.loads((tmp_path / "predicted.json").read_text())["rows"]
    assert [each["case"]["algorithm"] for each in rows] == ["one_shot", "sra", "ring", "tree", "recursive_doubling"]
    least = ((1 << 20) - (128 << 10)) / 125e6
    assert all(each[kind] > least for each in rows for kind in ("measured", "simulated", "formula"))
    assert "5 predictions; the worst is" in done.stdout and "us one way" in done.stdout
    assert (tmp_path / "predicted.png").stat().st_size > 0
    assert clusters() == before
