"""The data-parallel example: four ranks with different numbers of batches reach the same loss as one process."""

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


UNEVEN = [24, 48, 72, 96]  # the default without --batches


@pytest.mark.parametrize(
    ("batches", "policy", "tolerance"),
    [
        (UNEVEN, "none", 1e-6),
        (UNEVEN, "minmax:bits=8", 1e-4),
        (UNEVEN, "minmax:bits=4", 1e-3),
        ([60, 60, 60, 60], "none", 1e-6),
        ([1, 7, 30, 0], "none", 1e-6),
        ([1, 7, 30, 0], "minmax:bits=8", 1e-4),
    ],
    ids=str,
)
def test_four_ranks_reach_the_loss_of_one_process(batches, policy, tolerance):
    given = [] if batches is UNEVEN else ["--batches", ",".join(map(str, batches))]
    alone = float(re.search(r"loss (\S+)", output_of([EXAMPLE, "--as", "4", *given]))[1])
    launch = [str(ROOT / "build" / "qccl"), "run", "-n", "4", "--"]
    together = output_of([*launch, EXAMPLE, "--policy", policy, *given])
    rows = re.findall(r"^rank (\d): (\d+) batches, loss (\S+)$", together, re.M)
    assert sorted((int(rank), int(count)) for rank, count, _ in rows) == list(enumerate(batches))
    assert len({loss for _, _, loss in rows}) == 1, "written with all their digits"
    assert float(rows[0][2]) == pytest.approx(alone, rel=tolerance)


@pytest.mark.parametrize(
    "flags",
    [["--odd"], ["--policy"], ["--odd", "1"], ["--batches", "1,x"], ["--batches", "3,-1"], ["--as", "0"]],
    ids=str,
)
def test_wrong_flags_are_refused(flags):
    done = subprocess.run([EXAMPLE, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "usage" in done.stderr
