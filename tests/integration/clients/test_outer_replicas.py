"""The outer loop between a torchft manager's replicas, one of which is killed and comes back."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("outer_replicas.py")


def test_a_replica_is_killed_and_comes_back():
    done = subprocess.run(
        [sys.executable, PROGRAM],
        env={**os.environ, "OMP_NUM_THREADS": "1", "RUST_LOG": "error"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(row) for row in re.findall(r"ROW ({.*?})", done.stdout)]
    assert sorted(row["replica"] for row in rows) == [0, 1, 2]
    assert {row["replica"]: row["sizes"][-2:] for row in rows} == {0: [2, 3], 1: [3], 2: [2, 3]}
    assert len({row["model"] for row in rows}) == 1
    assert len({row["steps"] for row in rows}) == 1
