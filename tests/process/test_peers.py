"""bench/peers/compare end to end on a few bytes: it checks which network carried them, and leaves nothing behind."""

import json
import os
import shutil
import subprocess

import pytest
from program import DEADLINE, ROOT, environment

NETNS = ROOT / "scripts" / "netns.sh"


def peers(folder, *flags):
    files = ["--json", folder / "peers.json", "--plot", folder / "peers.png"]
    few = ["--rounds", "2", "--samples", "2", "--ranks", "2"]
    return subprocess.run(
        [ROOT / "bench/peers/compare", *few, *files, *flags],
        env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * DEADLINE,
    )  # fmt: skip


def clusters() -> str:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    return "\n".join(line for line in listed.stdout.splitlines() if line.startswith("peers"))


def need_openmpi():
    if shutil.which("mpicc.openmpi") is None:
        pytest.skip("Open MPI is not installed (bench/peers/compare installs it)")


def need_namespaces():
    check = subprocess.run([NETNS, "check"], capture_output=True, text=True)
    if check.returncode != 0:
        pytest.skip(check.stderr.strip())


@pytest.mark.parametrize("network", ["shm", "tcp"])
def test_table_and_files_hold_every_contestant_and_size(tmp_path, network):
    need_openmpi()
    done = peers(tmp_path, "--networks", network, "--contestants", "openmpi", "qccl", "--max-bytes", "16")
    assert done.returncode == 0, done.stderr
    assert "| bytes | openmpi | qccl | best / qccl |" in done.stdout
    rows = json.loads((tmp_path / "peers.json").read_text())["rows"]
    assert [row["bytes"] for row in rows] == [4, 16]
    for row in rows:
        assert [len(row["seconds"][name]) for name in ("openmpi", "qccl")] == [2, 2]
        pairs = [theirs / ours for ours, theirs in zip(row["seconds"]["qccl"], row["seconds"]["openmpi"], strict=True)]
        assert min(pairs) <= row["ratios"]["qccl"]["openmpi"]["ratio"] <= max(pairs)
    assert (tmp_path / "peers.png").stat().st_size > 0


def test_hosts_on_shaped_links_keep_the_rate_and_go_away(tmp_path):
    need_openmpi()
    need_namespaces()
    before = clusters()
    done = peers(
        tmp_path, "--networks", "1gbit", "--contestants", "openmpi", "qccl", "qccl:minmax:bits=4",
        "--min-bytes", "4M", "--max-bytes", "4M",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row = json.loads((tmp_path / "peers.json").read_text())["rows"][0]
    least = (4 << 20) * 8 / 1.2e9  # a link in a namespace may begin with a burst
    assert min(row["seconds"]["qccl"] + row["seconds"]["openmpi"]) > least
    assert min(row["seconds"]["qccl:minmax:bits=4"]) < min(row["seconds"]["qccl"])
    assert "A plain TCP stream carries" in done.stdout
    assert clusters() == before


def test_a_contestant_that_fails_ends_the_comparison(tmp_path):
    done = peers(tmp_path, "--networks", "shm", "--contestants", "qccl:no-such-codec", "--max-bytes", "4")
    assert done.returncode == 1
    assert "qccl:no-such-codec on shm with 2 ranks gave 0 of 1 results" in done.stderr


def test_namespaces_are_refused_with_a_reason_where_there_is_no_root(tmp_path):
    program = tmp_path / "id"
    program.write_text("#!/bin/sh\necho 1000\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run([NETNS, "check"], env=environment(PATH=path), capture_output=True, text=True)
    assert done.returncode == 1
    assert "need root" in done.stderr or "iproute2" in done.stderr
