"""bench/hosts/simulated --check: the simulator's times are those that were measured."""

import subprocess

import pytest
from program import DEADLINE, ROOT, environment


def check(*words):
    return subprocess.run(
        [ROOT / "bench/hosts/simulated", "--check", *map(str, words)],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * DEADLINE,
    )  # fmt: skip


def ratios(done):
    rows = [row.split(" | ") for row in done.stdout.splitlines()[2:]]
    return [float(row[-2]) for row in rows]


def test_simulated_times_are_within_a_fifth_of_measured_ones():
    done = check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(ratios(done)) >= 15
    assert ratios(done) == pytest.approx([1] * len(ratios(done)), abs=0.2)


def test_times_that_are_off_end_with_exit_status_1():
    done = check("--flags", "--window", "64K")  # not the library's: far too short for most lines
    assert done.returncode == 1
    assert max(ratios(done)) > 1.2
    assert "are off by more than 20%" in done.stderr
