"""bench/hosts: the bound that compare divides by, and a run of each command on small data."""

import json
import subprocess
import sys

import pytest
from program import DEADLINE, ROOT, environment

sys.path.insert(0, str(ROOT))
from bench.hosts.bound import bound  # noqa: E402

MIB = 1 << 20


def test_the_bound_of_equal_lines_is_that_of_the_bytes_and_three_latencies():
    assert bound("200mbit+10ms", 8, 16 * MIB) == pytest.approx(2 * 7 / 8 * 16 * MIB / 25e6 + 0.03)
    assert bound("100mbit+1ms", 2, 4 * MIB) == pytest.approx(4 * MIB / 12.5e6 + 0.003)


@pytest.mark.parametrize("hosts", [3, 4, 8])
def test_a_slow_host_gets_the_share_that_all_are_ready_with_at_once(hosts):
    equal, slow = bound("1gbit+0ms", hosts, MIB), bound("1gbit+0ms+host=2+rate=500mbit", hosts, MIB)
    # With a share x for the slow host: (1 + (N - 2) x) / 0.5 = 1 + (N - 2) (1 - x) / (N - 1), or x = 0.
    share = max(0, ((hosts - 2) / (hosts - 1) - 1) / ((hosts - 2) * (2 + 1 / (hosts - 1))))
    time = max(2 * (1 + (hosts - 2) * share), 1 + (hosts - 2) * (1 - share) / (hosts - 1))
    assert slow / equal == pytest.approx(time / (2 - 2 / hosts))


def test_a_way_out_that_is_slower_than_the_way_in_counts():
    assert bound("100mbit+0ms+up-rate=10mbit", 4, MIB) == pytest.approx(bound("10mbit+0ms", 4, MIB))


@pytest.fixture
def wan():
    check = subprocess.run([ROOT / "scripts" / "wan.sh", "check"], capture_output=True, text=True)
    if check.returncode != 0:
        pytest.skip(check.stderr.strip())


def test_a_run_prints_and_draws_multiples_of_the_bound(tmp_path, wan):
    files = ["--json", tmp_path / "hosts.json", "--picture", tmp_path / "hosts.png"]
    done = subprocess.run(
        [ROOT / "bench/hosts/compare", "--hosts", "3", "--lines", "100mbit+1ms+uplink=holds", "--bytes", "64K",
         "--rounds", "1", "--contestants", "qccl", "qccl:int:bits=4", *files],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "| line | hosts | bytes | qccl | qccl:int:bits=4 |" in done.stdout
    (row,) = json.loads((tmp_path / "hosts.json").read_text())
    for name, encoded in (("qccl", 65536), ("qccl:int:bits=4", 65536 * 4.125 / 32)):
        expected = row["seconds"][name] / bound("100mbit+1ms", 3, encoded)
        assert row["multiples"][name] == pytest.approx(expected, rel=0.01)
    assert (tmp_path / "hosts.png").stat().st_size > 0


def test_steps_of_training_are_timed_by_each_contestant(tmp_path, wan):
    pytest.importorskip("torch")
    done = subprocess.run(
        [ROOT / "bench/hosts/training", "--hosts", "2", "--line", "100mbit+1ms", "--steps", "2", "--rounds", "1",
         "--layers", "1", "--json", tmp_path / "training.json"],
        env=environment(), capture_output=True, text=True, timeout=4 * DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "training.json").read_text())
    uncompressed, coded = ["gloo", "qccl"], ["qccl, 8 bits", "qccl, 4 bits"]
    budgets = ["qccl, budget of 1.5 bits", "qccl, budget of 1 bit"]
    assert [row["contestant"] for row in rows] == uncompressed + coded + budgets
    assert all(len(row["seconds"]) == 2 and row["parameters"] > 1e5 for row in rows)
    least = [float(row.split("|")[3]) for row in done.stdout.splitlines() if row.startswith(("| gloo", "| qccl"))]
    assert least[0] == least[1] > least[2] > least[3] > least[4] > least[5] > 1
    bits = [row["bits"] for row in rows]
    assert bits[0] == 0 and 32 <= bits[1] < 33 and 8 < bits[2] < 10 and 4 < bits[3] < 6 and 0 < bits[5] < bits[3]


def test_two_jobs_and_other_flows_share_lines(tmp_path, wan):
    done = subprocess.run(
        [ROOT / "bench/hosts/sharing", "--hosts", "3", "--line", "50mbit+1ms", "--bytes", "768K", "--samples", "4",
         "--flows", "2", "--json", tmp_path / "sharing.json"],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=4 * DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    alone, both, beside = json.loads((tmp_path / "sharing.json").read_text())
    assert [len(row["seconds"]) for row in (alone, both, beside)] == [1, 2, 1]
    assert min(beside["qccl"], beside["others"]) > 0.2, "nobody is starved"
    assert beside["qccl"] + beside["others"] < 1.1
    assert alone["others"] < 0.2 * alone["qccl"]
    assert "| one job beside 2 TCP flows |" in done.stdout
