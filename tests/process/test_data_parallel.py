"""The data-parallel example: four ranks with different numbers of batches come to the loss of one process."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = str(ROOT / "build" / "examples" / "data_parallel")


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "policy, tolerance", [("none", 1e-6), ("minmax:bits=8", 1e-4), ("minmax:bits=4", 1e-3)], ids=str
)
def test_four_ranks_reach_the_loss_of_one_process(policy, tolerance):
    alone = float(re.search(r"loss (\S+)", output_of([EXAMPLE, "--as", "4"]))[1])
    together = output_of([str(ROOT / "build" / "qccl"), "run", "-n", "4", "--", EXAMPLE, "--policy", policy])
    rows = re.findall(r"^rank (\d): (\d+) batches, loss (\S+)$", together, re.M)
    assert sorted((int(rank), int(batches)) for rank, batches, _ in rows) == [(0, 24), (1, 48), (2, 72), (3, 96)]
    assert len({loss for _, _, loss in rows}) == 1
    assert float(rows[0][2]) == pytest.approx(alone, rel=tolerance)


def test_wrong_flags_are_refused():
    done = subprocess.run([EXAMPLE, "--odd"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "usage" in done.stderr
