"""bench/gpu/against_gloo: its arguments, its table of recorded figures, and a short run on the CPU."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODECS = ("none", "minmax:bits=8", "minmax:bits=4")


def against_gloo(*flags: object) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("QCCL_")}
    command = [ROOT / "bench" / "gpu" / "against_gloo", *map(str, flags)]
    return subprocess.run(command, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def recorded(link_rate: str) -> dict:
    samples = {"gloo": [0.004, 0.006, 0.005], "copies": [0.001] * 3}
    samples |= {codec: [0.002 / (1 + i)] * 3 for i, codec in enumerate(CODECS)}
    row = {"device": "H200", "ranks": 4, "bytes": 1 << 20, "samples": samples}
    return {"network": "tcp", "link_rate": link_rate, "rows": [row]}


def table_of(document: dict, folder: Path) -> list[str]:
    file = folder / "recorded.json"
    file.write_text(json.dumps(document))
    done = against_gloo("--from", file)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_table_has_medians_and_the_ratio_of_pairs(tmp_path):
    title, _, heads, _, row = table_of(recorded("none"), tmp_path)
    assert title == "H200; network: tcp"
    assert heads.startswith("| ranks | size | copies ms | gloo ms | QCCL ms | gloo / QCCL | 8 bits ms |")
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:5] == ["4", "1 MiB", "1.00", "5.00", "2.00"]
    assert cells[5] == "2.50 (2.00..3.00)" and cells[7] == "5.00 (4.00..6.00)" and cells[9] == "7.50 (6.00..9.00)"


def test_beside_a_paced_qccl_gloo_takes_at_least_what_its_bytes_do(tmp_path):
    title, _, heads, _, row = table_of(recorded("1gbit"), tmp_path)
    assert title == "H200; network: tcp, QCCL paced at 1gbit" and "| gloo ms, at least |" in heads
    assert row.split("|")[4].strip() == "12.58"  # 2 * 3/4 * 8 Mi bits at 1 Gbit/s


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--network", "pigeons"], "none of shm, tcp and a rate"),
        (["--link-rate", "fast"], "neither none nor a rate"),
        (["--network", "shm", "--link-rate", "1gbit"], "--link-rate is for --network tcp"),
        (["--network", "1gbit", "--link-rate", "1gbit"], "a shaped link has its rate"),
        (["--ranks", "1"], "--ranks must be at least 2"),
        (["--pairs", "0"], "--pairs at least 1"),
    ],
)
def test_wrong_arguments_are_2_and_say_what_is_allowed(flags, words):
    done = against_gloo(*flags)
    assert done.returncode == 2 and words in done.stderr


def test_without_a_gpu_it_is_3_and_says_what_to_do():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this torch sees a GPU")
    done = against_gloo()
    assert done.returncode == 3 and done.stdout == ""
    assert done.stderr.startswith(f"against_gloo: torch {torch.__version__} sees no GPU: ")


def test_an_environment_without_torch_is_3_and_named():
    done = against_gloo("--venv", "/usr/no/such")
    assert done.returncode == 3 and "/usr/no/such/bin/python has no torch" in done.stderr


@pytest.mark.parametrize("network", ["tcp", "1gbit"])
def test_all_contestants_are_measured_on_the_same_ranks(network, tmp_path):
    if network == "1gbit":
        check = subprocess.run([ROOT / "scripts" / "netns.sh", "check"], capture_output=True, text=True)
        if check.returncode != 0:
            pytest.skip(check.stderr.strip())
    file = tmp_path / "rows.json"
    short = ["--ranks", 2, "--min-bytes", "64K", "--max-bytes", "256K", "--pairs", 2, "--json", file]
    done = against_gloo("--device", "cpu", "--network", network, *short)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(file.read_text())
    assert document["link_rate"] == ("1gbit" if network == "tcp" else "none")
    assert [(row["ranks"], row["bytes"]) for row in document["rows"]] == [(2, 1 << 16), (2, 1 << 18)]
    for row in document["rows"]:
        assert set(row["samples"]) == {"gloo", "copies", *CODECS}
        assert all(len(times) == 2 and min(times) > 0 for times in row["samples"].values())
    large = document["rows"][-1]["samples"]
    assert min(large["none"]) > 0.001, "256 KiB pass in 2.1 ms at 1 Gbit/s"
    assert min(large["minmax:bits=4"]) < max(large["none"])
