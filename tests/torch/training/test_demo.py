"""The demo: its report's arithmetic and words, its errors, and one short run of the whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "demo"))

import devices  # noqa: E402
import report  # noqa: E402
import text  # noqa: E402

LIMIT_SECONDS = 100


def run_demo(*arguments, **variables):
    command = [sys.executable, str(ROOT / "demo" / "demo.py"), *arguments]
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )


def make_result(seconds, losses):
    specs = {"uncompressed": "none", "8 bit": "minmax:bits=8", "4 bit": "minmax:bits=4"}
    events = [{"event": "start", "parameters": 2_000_000, "tokens_per_step": 100}]
    for spec, took, loss in zip(specs.values(), seconds, losses, strict=True):
        # The first step is slow in every run, and no run counts it.
        for step, factor in enumerate((10, 1, 1)):
            fields = {"compression": spec, "step": step, "seconds": factor * took, "bytes_sent": 3_000_000, "loss": 1.0}
            events.append({"event": "step", **fields})
        events.append({"event": "validation", "compression": spec, "step": 3, "seconds": 12 * took, "loss": loss})
    return report.Result.collect(events, specs, ranks=4, link_rate="100mbit")


def test_report_means_leave_the_first_step_out():
    result = make_result((1.0, 0.5, 0.25), (2.0, 2.0, 2.0))
    assert [run.milliseconds_per_step for run in result.runs] == [1000, 500, 250]
    assert [run.tokens_per_second for run in result.runs] == [100, 200, 400]
    assert [run.megabytes_sent_per_step for run in result.runs] == [3, 3, 3]


def test_conclusion_names_the_fastest_compressed_run_and_its_loss():
    conclusion = make_result((1.0, 0.5, 0.25), (2.0, 2.0, 2.01)).conclusion()
    assert conclusion.startswith("4 bit trained 4.0 times as fast as uncompressed")
    assert "2.010 against 2.000 (+0.50 %) after 3 steps" in conclusion


def test_conclusion_admits_when_compressing_did_not_pay():
    assert "no faster (0.80 times) than uncompressed" in make_result((1.0, 1.25, 2.0), (2.0, 2.0, 2.0)).conclusion()


def test_report_is_drawn_and_written(tmp_path):
    result = make_result((1.0, 0.5, 0.25), (2.0, 2.0, 2.01))
    result.draw(tmp_path / "report.png")
    result.write_json(tmp_path / "report.json")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "report.json").read_text())
    assert [run["speed_up"] for run in content["runs"]] == [1, 2, 4]


def test_default_text_is_there_and_the_last_tenth_is_held_out():
    training, validation = text.load(None)
    assert len(training) + len(validation) > 1_000_000
    assert len(validation) == pytest.approx(len(training) / 9, abs=2)


def test_short_run_from_launch_to_report(tmp_path):
    file = tmp_path / "words.txt"
    file.write_bytes(b"the quick brown fox jumps over the lazy dog; " * 3000)
    shape = ("--steps", "2", "--ranks", "2", "--link-rate", "1gbit")
    done = run_demo(*shape, "--data", str(file), "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "report.json").read_text())["runs"]
    plain, eight, four = (run["megabytes_sent_per_step"] for run in runs)
    assert plain / eight == pytest.approx(4, rel=0.1) and plain / four == pytest.approx(8, rel=0.1)
    assert done.stdout.strip().splitlines()[-1].startswith(("4 bit trained", "8 bit trained"))
    assert (tmp_path / "report.png").exists()


def test_gpus_that_are_not_there_are_said_in_one_line():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = run_demo("--device", "cuda")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("demo: --device cuda: ") and done.stderr.count("\n") == 1
    assert done.stderr.endswith(", or leave --device out to train on the processors\n")


def test_other_devices_are_refused_with_those_there_are():
    done = run_demo("--device", "abacus")
    assert done.returncode == 2 and "'cpu', 'cuda'" in done.stderr


def test_the_reason_follows_from_torch(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    reasons = ((None, "is built without CUDA: docs/gpu.md"), ("13.0", "torch finds no GPU: see whether nvidia-smi"))
    for version, words in reasons:
        monkeypatch.setattr(torch.version, "cuda", version)
        with pytest.raises(devices.DeviceError, match=words):
            devices.check("cuda")
    devices.check("cpu")


def test_gpus_are_dealt_in_turn(monkeypatch):
    current = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "H200")
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    for local_rank in range(3):
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
        devices.of_rank("cuda")
    assert [str(device) for device in current] == ["cuda:0", "cuda:1", "cuda:0"]
    assert devices.describe("cuda", 4) == "2 of 2 GPUs (H200)"


def test_missing_text_is_said_in_one_line():
    done = run_demo("--data", "/no/such/file")
    assert done.returncode == 1
    assert done.stderr == "demo: can't read the text: No such file or directory: /no/such/file\n"


def test_failing_rank_ends_the_demo_with_its_words(tmp_path):
    done = run_demo("--steps", "2", "--ranks", "2", "--output", str(tmp_path), QCCL_TIMEOUT="soon")
    assert done.returncode == 1
    assert "QCCL_TIMEOUT" in done.stderr
    assert not (tmp_path / "report.json").exists()
