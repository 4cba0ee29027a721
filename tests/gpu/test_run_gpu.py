"""`make gpu` (scripts/run_gpu.py) and its programs, with tiny sizes over the fake driver."""

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from program import needs_devices

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
from bench.gpu import figures  # noqa: E402

import run_gpu as script  # noqa: E402

pytestmark = needs_devices

BENCH = ROOT / "build" / "bench"
FAKE = {"LD_LIBRARY_PATH": str(ROOT / "build" / "fake_cuda")}
KERNELS = ["--elements", "20000", "--slice", "8192", "--copy-bytes", "65536", "--samples", "0"]
RANKS = ["--worlds", "2", "3", "--least", "65536", "--largest", "262144", "--iterations", "1"]
PROCESSES = ["--processes", "2", "--largest-of-processes", "65536"]


def run(*command: object, **variables: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QCCL_", "FAKE_CUDA"))}
    return subprocess.run(
        [str(word) for word in command], env=kept | variables, capture_output=True, text=True, timeout=100
    )


def run_gpu(file: Path, *flags: object, **variables: str) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "scripts" / "run_gpu.py", "--no-build", "--json", file]
    misuses = file.parent / "misuses"
    done = run(*command, *KERNELS, *RANKS, *PROCESSES, *flags, FAKE_CUDA_MISUSES=str(misuses), **variables)
    assert not misuses.exists(), misuses.read_text()
    return done


def part_of(file: Path, name: str) -> dict:
    return json.loads(file.read_text())["parts"][name]


def test_kernels_ranks_and_processes_have_equal_bytes_and_figures(tmp_path):
    file = tmp_path / "gpu.json"
    done = run_gpu(file, "--parts", "kernels", "ranks", "processes", **FAKE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(f"All bytes are equal. Figures: {file}")
    document = json.loads(file.read_text())
    assert document["device"] == "Fake device 0"
    kernels = document["parts"]["kernels"]
    assert kernels["registration"]["works"] and all(value > 0 for value in kernels["calls_us"].values())
    passes = {(row["format"], row["pass"]) for row in kernels["kernels"] if row["equal"] and row["GBps"] > 0}
    formats = {name for name, _ in passes}
    assert {"none of float32", "cast:type=bf16", "minmax:bits=1", "int:bits=8", "sign with residual"} <= formats
    assert len(passes) == 3 * len(formats) >= 3 * 25
    ranks = document["parts"]["ranks"]["rows"]
    assert len(ranks) == 2 * 2 * 3 * 3 and all(row["equal"] and row["share_of_bound"] > 0 for row in ranks)
    processes = document["parts"]["processes"]["rows"]
    assert len(processes) == 2 * 2 * 3 and all(row["wrong"] == 0 for row in processes)
    assert len(figures.figures(document)) > 200


def test_a_format_with_a_wrong_byte_is_not_timed_and_the_others_are(tmp_path):
    file = tmp_path / "gpu.json"
    sizes = ["--elements", 20000, "--slice", 8192, "--bytes", 65536, "--samples", 0, "--blocks", 16, 132]
    cases = ["--case", "sign", "cast:type=bf16", "--plant", "sign"]
    done = run(BENCH / "gpu_kernels", *sizes, *cases, "--json", file, **FAKE)
    assert done.returncode == 1
    rows = json.loads(file.read_text())["kernels"]
    timed = {(row["format"], row["pass"]) for row in rows if "GBps_132_blocks" in row and "GBps_16_blocks" in row}
    assert len(rows) == 6 and len(timed) == 5 and ("sign", "encode") not in timed


@pytest.mark.parametrize("part", ["kernels", "ranks"])
def test_a_wrong_byte_is_found_and_is_exit_1(part, tmp_path):
    file = tmp_path / "gpu.json"
    done = run_gpu(file, "--parts", part, "--plant", part, **FAKE)
    assert done.returncode == 1
    assert "DIFFERENT BYTES" in done.stdout and f"FAILED: {part}: bytes differ" in done.stdout
    assert part_of(file, part)["equal"] is False


def test_streams_that_wait_go_on_and_processes_end_in_every_case(tmp_path):
    file = tmp_path / "gpu.json"
    done = run_gpu(file, "--parts", "gates", **FAKE)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = part_of(file, "gates")["rows"]
    assert [(row["case"], row["connections"]) for row in rows] == [
        (case, int(count)) for count in script.CONNECTIONS for case in script.GATE_CASES
    ]
    assert all(row["order"] == ("host" if row["connections"] == 1 else "gate") for row in rows)
    assert {row["end"] for row in rows} == {"ok"}
    cases = len(script.GATE_CASES)
    for count in (2, 8, 32):
        assert f"  gates, connections: {count}: streams wait at gates; {cases} of {cases} cases end\n" in done.stdout
    assert f"  gates, connections: 1: the host waits; {cases} of {cases} cases end\n" in done.stdout


def test_a_hang_and_a_wrong_end_are_found_and_are_exit_1(tmp_path, monkeypatch):
    file = tmp_path / "gpu.json"
    done = run_gpu(file, "--parts", "gates", "--plant", "gates", "--gate-seconds", 3, **FAKE)
    assert done.returncode == 1
    hung = [f"hang (connections: {count}) did not end within 3 s" for count in script.CONNECTIONS]
    assert part_of(file, "gates")["failed"] == "; ".join(hung)
    monkeypatch.setattr(script, "GATE_CASES", {"nonsense": 0})
    monkeypatch.setattr(sys, "argv", ["run_gpu"])
    part = script.run_gates(script.parse_arguments())
    assert part["failed"].startswith("nonsense (connections: 8) ended with exit code 2; ")


def test_figures_are_compared_with_the_last_ones(tmp_path):
    file = tmp_path / "gpu.json"
    assert run_gpu(file, "--parts", "kernels", **FAKE).returncode == 0
    first = json.loads(file.read_text())
    first["parts"]["kernels"]["calls_us"]["launch"] *= 100
    file.write_text(json.dumps(first))
    done = run_gpu(file, "--parts", "kernels", **FAKE)
    assert done.returncode == 0
    assert "times as fast: launch, us: " in done.stdout and f"since {first['date']}" in done.stdout
    assert json.loads((tmp_path / "gpu.last.json").read_text()) == first


def test_without_a_driver_it_is_3_in_the_loaders_words(tmp_path):
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a GPU's driver")
    except OSError:
        programs = {
            "run_gpu": run_gpu(tmp_path / "gpu.json"),
            "gpu_gates": run(BENCH / "gpu_gates", "exit"),
            "gpu_kernels": run(BENCH / "gpu_kernels"),
            "gpu_ranks": run(BENCH / "gpu_ranks"),
            "gpu_tests": run(ROOT / "build" / "tests" / "gpu_tests"),
        }
        for name, done in programs.items():
            assert done.returncode == 3 and done.stdout == "", name
            assert done.stderr.startswith(f"{name}: no GPU: ") and "libcuda.so.1: cannot open" in done.stderr
            assert "install driver 525 or later" in done.stderr
        assert list(tmp_path.iterdir()) == []


def test_a_driver_without_a_device_is_3(tmp_path):
    done = run_gpu(tmp_path / "gpu.json", "--parts", "kernels", **FAKE, FAKE_CUDA_FAIL="cuInit=100")
    assert done.returncode == 3 and "no CUDA-capable device" in done.stderr


def test_a_part_that_fails_is_1_and_the_others_run(tmp_path):
    file = tmp_path / "gpu.json"
    done = run_gpu(file, "--parts", "kernels", "ranks", **FAKE, FAKE_CUDA_FAIL="cuModuleLoadData=2")
    assert done.returncode == 1
    assert "cuModuleLoadData" in done.stderr and "FAILED: kernels: gpu_kernels ended with exit code 4" in done.stdout
    assert part_of(file, "ranks")["equal"]


def test_memory_that_cannot_be_registered_is_a_figure_and_no_failure(tmp_path):
    file = tmp_path / "gpu.json"
    done = run_gpu(file, "--parts", "kernels", **FAKE, FAKE_CUDA_FAIL="cuMemHostRegister=801")
    assert done.returncode == 0
    assert part_of(file, "kernels")["registration"] == {
        "works": False, "why": "device 0: cuMemHostRegister: error 801"
    }  # fmt: skip


def test_sizes_beyond_the_time_or_the_memory_are_named_as_left_out(tmp_path):
    file = tmp_path / "gpu.json"
    assert run_gpu(file, "--parts", "ranks", "--seconds", "0", **FAKE).returncode == 0
    part = part_of(file, "ranks")
    assert part.get("rows") is None
    assert part["left_out"][0] == {"ranks": 2, "bytes": 65536, "for_lack_of": "time"} and len(part["left_out"]) == 4
    sizes = ["--worlds", 2, "--least", 65536, "--largest", 1 << 20, "--iterations", 1, "--host-memory", 2 << 20]
    done = run(BENCH / "gpu_ranks", *sizes, **FAKE)
    assert done.returncode == 0 and done.stdout.count("of 256 KiB") == 9
    assert done.stdout.splitlines()[-1] == "2 ranks, 1024 KiB: left out for lack of memory"


def test_wrong_flags_of_the_programs_are_2():
    assert run(BENCH / "gpu_kernels", "--elements", "many").returncode == 2
    assert run(BENCH / "gpu_ranks", "--worlds", "1").returncode == 2
    planted = run(BENCH / "gpu_kernels", "--plant", "zip", **FAKE)
    assert planted.returncode == 2 and "--plant: zip not in {" in planted.stderr


# Of each thing that tests ask of the fake driver: failures on order, the library's streams, launches, objects, hazards.
ASKING_TESTS = "ShadowPool*:*a_device_that_fails*:*warm_calls*:*a_failed_call*:*frames*/shm:*may_leave*:*single_queue*"


def test_the_tests_of_a_gpu_pass_but_those_that_only_the_fake_can_serve(tmp_path):
    misuses = tmp_path / "misuses"
    command = [ROOT / "build" / "tests" / "gpu_tests", f"--gtest_filter={ASKING_TESTS}"]
    done = run(*command, **FAKE, FAKE_CUDA_MISUSES=str(misuses))
    assert done.returncode == 0, done.stdout
    passed, failed, left_out = map(int, re.findall(r"\d+", done.stdout.splitlines()[-1])[:3])
    assert (failed, left_out) == (0, 2) and passed == done.stdout.count("\npassed: ") >= 20
    reason = "only the fake driver can have other queues than its process"
    assert f"GatedCalls.streams_of_a_single_queue_wait_on_the_host/shm: {reason}\n" in done.stdout


@pytest.mark.parametrize("part", ["training", "nccl"])
def test_parts_that_need_torch_say_what_torch_lacks(part, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this torch sees a GPU")
    file = tmp_path / "gpu.json"
    assert run_gpu(file, "--parts", part, **FAKE).returncode == 0
    assert f"torch {torch.__version__} in " in part_of(file, part)["skipped"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "there is no {python} with a torch: docs/gpu.md makes an environment, --venv names it"),
        ("2.13.0+cpu None False", "torch 2.13.0+cpu in {venv} is built without CUDA: docs/gpu.md makes"),
        ("2.13.0+cu130 13.0 False", "torch 2.13.0+cu130 in {venv} sees no GPU: its CUDA 13.0 may want a later driver"),
    ],
)
def test_an_environment_is_refused_with_what_its_torch_lacks(said, words, tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    if said is not None:
        python.parent.mkdir()
        python.write_text(f"#!/bin/sh\necho {said}\n")
        python.chmod(0o755)
    monkeypatch.setenv("QCCL_VENV", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["run_gpu"])
    with pytest.raises(script.Skipped) as refusal:
        script.torch_python(script.parse_arguments())
    assert str(refusal.value).startswith(words.format(python=python, venv=tmp_path))


def test_everything_that_was_left_out_is_listed_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "run_program", lambda *_, **__: 0)
    monkeypatch.setattr(script.shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["run_gpu", "--venv", str(tmp_path)])
    part = script.run_tests(script.parse_arguments())
    assert part["ran"] == ["tests/gpu"] and "failed" not in part
    assert set(part["left_out"]) == {"memcheck", "racecheck", "tests/torch/device"} and all(part["left_out"].values())


# ---- the build


class Commands:
    """Stands for subprocess.run: notes the commands; those with one of the words fail."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.lines: list[str] = []

    def run(self, command: list[object], check: bool = False, **_: object) -> subprocess.CompletedProcess:
        self.lines.append(" ".join(map(str, command)).replace(f"{ROOT}/", ""))
        code = 2 if any(word in self.lines[-1] for word in self.failing) else 0
        if check and code != 0:
            raise subprocess.CalledProcessError(code, command)
        return subprocess.CompletedProcess(command, code)


def built_with(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(script, "load_driver", lambda: None)
    monkeypatch.setattr(script, "measure", lambda _: sys.exit(0))
    monkeypatch.setattr(script.subprocess, "run", commands.run)
    monkeypatch.setattr(sys, "argv", ["run_gpu"])
    with pytest.raises(SystemExit) as end:
        sys.exit(script.main())
    return end.value.code


def test_the_build_has_machine_code_for_every_gpu(monkeypatch):
    commands = Commands()
    assert built_with(commands, monkeypatch) == 0
    find, configure, build = commands.lines
    assert find == "cmake -P cmake/QcclNvcc.cmake"
    assert (
        configure == "cmake --preset default -DQCCL_DEVICES=ON -DQCCL_DEVICE_KERNELS=ON -DQCCL_CUDA_ARCHITECTURES=all"
    )
    assert build.startswith("scripts/build_python.sh ")


def test_cudas_compiler_is_installed_where_the_build_finds_none(monkeypatch):
    commands = Commands("QcclNvcc")
    assert built_with(commands, monkeypatch) == 0
    assert commands.lines[1] == "scripts/install_cuda.sh"


def test_a_build_that_fails_is_1_in_one_line(monkeypatch, capsys):
    assert built_with(Commands("build_python"), monkeypatch) == 1
    assert capsys.readouterr().err == "run_gpu: building failed: build_python.sh ended with exit code 2\n"


def test_the_kernels_run_under_compute_sanitizer_where_it_is_installed(tmp_path):
    stand_in = tmp_path / "compute-sanitizer"
    stand_in.write_text('#!/bin/sh\necho "checked by $2"\nshift 4\nexec "$@"\n')
    stand_in.chmod(0o755)
    file = tmp_path / "gpu.json"
    variables = {**FAKE, "PATH": f"{tmp_path}:{os.environ['PATH']}", "GTEST_FILTER": "*barrier*"}
    done = run_gpu(file, "--parts", "tests", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checked by memcheck\n" in done.stdout and "checked by racecheck\n" in done.stdout
    assert {"memcheck", "racecheck", "tests/gpu"} <= set(part_of(file, "tests")["ran"])
    stand_in.write_text("#!/bin/sh\nexit 9\n")
    assert run_gpu(file, "--parts", "tests", **variables).returncode == 1
    assert part_of(file, "tests")["failed"] == "memcheck, racecheck"


def rows_of_two_ranks(program: Path, *flags: object, **variables: str) -> list[dict]:
    done = run(ROOT / "build" / "qccl", "run", "-n", 2, "--", sys.executable, program, *flags, **variables)
    assert done.returncode == 0, done.stderr
    return [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ROW ")]


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_steps_of_training_are_timed_for_each_compression(way):
    flags = ["--device", "cpu", "--way", way, "--steps", 1]
    rows = rows_of_two_ranks(script.TRAINING, *flags, "none", "minmax:bits=4")
    assert [(row["ranks"], row["way"], row["compression"]) for row in rows] == [
        (2, way, "none"), (2, way, "minmax:bits=4")
    ]  # fmt: skip
    assert all(row["ms"] > 0 and 4 < row["loss"] < 6 for row in rows)


def test_training_runs_where_the_host_waits_and_where_streams_do(tmp_path, monkeypatch):
    def rows_of(command: list, QCCL_STREAM_ORDER: str) -> list[dict]:  # noqa: N803
        way = command[command.index("--way") + 1]
        return [{"ranks": 2, "way": way, "compression": "none", "ms": 12.0 if QCCL_STREAM_ORDER == "host" else 9.0}]

    monkeypatch.setattr(script, "torch_python", lambda _: Path(sys.executable))
    monkeypatch.setattr(script, "rows_of", rows_of)
    monkeypatch.setattr(sys, "argv", ["run_gpu", "--processes", "2"])
    document = document_of(training=script.run_training(script.parse_arguments()))
    assert figures.highlights(document) == (
        "  training, ddp, 2 ranks, none: host: 12.0 ms, gate: 9.0 ms\n"
        "  training, fsdp2, 2 ranks, none: host: 12.0 ms, gate: 9.0 ms\n"
    )
    assert len(figures.figures(document)) == 4


# ---- torch's nccl backend


def test_training_through_torchs_backends_has_the_same_losses():
    flags = ["--device", "cpu", "--steps", 3, "--backend"]
    (gloo,) = rows_of_two_ranks(script.NCCL_TRAINING, *flags, "gloo")
    (own,) = rows_of_two_ranks(script.NCCL_TRAINING, *flags, "qccl")
    (compressed,) = rows_of_two_ranks(script.NCCL_TRAINING, *flags, "qccl", QCCL_COMPRESSION="minmax:bits=8")
    assert (compressed["backend"], compressed["compression"]) == ("qccl", "minmax:bits=8")
    assert script.losses_that_differ(gloo, own, compressed) == []


def test_losses_that_differ_are_named():
    def row(*losses: float) -> dict:
        return {"ranks": 2, "losses": list(losses)}

    assert script.losses_that_differ(row(5, 4), row(5, 4.0001), row(5, 4.1)) == []
    assert script.losses_that_differ(row(5, 4), row(5, 4.01), row(5, 4.1)) == [
        "2 ranks: losses differ by more than 0.001 from the qccl backend's"
    ]
    assert script.losses_that_differ(row(5, 4), row(5, 4), row(5, 6)) == [
        "2 ranks: losses do not go down with minmax:bits=8"
    ]
    assert script.losses_that_differ(row(5, 4), row(5, 4), row(5, 4)) == ["2 ranks: minmax:bits=8 makes no difference"]
    nan = float("nan")
    assert len(script.losses_that_differ(row(5, 4), row(5, nan), row(5, nan))) >= 2


def test_the_nccl_part_preloads_qccl_for_the_nccl_backend_alone(monkeypatch):
    commands: list[tuple[str, str]] = []

    def rows_of(command: list, QCCL_COMPRESSION: str) -> list[dict]:  # noqa: N803
        commands.append((" ".join(map(str, command)), QCCL_COMPRESSION))
        return [{"ranks": 2, "losses": [5, 4 if QCCL_COMPRESSION == "none" else 4.1]}]

    monkeypatch.setattr(script, "torch_python", lambda _: Path(sys.executable))
    monkeypatch.setattr(script, "rows_of", rows_of)
    monkeypatch.setattr(sys, "argv", ["run_gpu", "--processes", "2"])
    part = script.run_nccl(script.parse_arguments())
    assert "failed" not in part and len(part["rows"]) == 3
    assert [compression for _, compression in commands] == ["none", "none", "minmax:bits=8"]
    preloads = [f"env LD_PRELOAD={script.NCCL} " in command for command, _ in commands]
    assert preloads == [command.endswith(" nccl") for command, _ in commands] == [False, True, True]


# ---- the comparison and the highlights


def test_highlights_are_the_worst_and_the_best_of_each_part():
    jobs = [{"format": "sign", "pass": "encode", "share_of_copy": share} for share in (0.9, 0.4, 0.75)]
    row = {"collective": "all_reduce", "compression": "none", "bytes": 1 << 20, "ranks": 2}
    shares = [row | {"share_of_bound": 0.25}, row | {"collective": "all_gather", "share_of_bound": 0.5}]
    text = figures.highlights(document_of(kernels={"kernels": jobs}, ranks={"rows": shares}))
    assert text.splitlines() == [
        "  kernels: 2 of 3 jobs have 70 % of a copy on the device or more; the slowest, sign encode, has 40 %",
        "  2 ranks, 1 MiB: from 25 % (all_reduce, none) to 50 % (all_gather, none) of the link's bound",
    ]
    assert figures.highlights(document_of(kernels={"failed": "it broke"})) == ""


def document_of(**parts) -> dict:
    return {"device": "H200", "date": "2026-01-01T00:00", "parts": parts}


def test_slower_and_faster_figures_are_named_with_their_factor():
    def measured(us: float, rate: float) -> dict:
        return document_of(kernels={"calls_us": {"launch": us}, "copy": {"bytes": 9, "on_device_GBps": rate}})

    text = figures.comparison(measured(2, 100), measured(1, 50))
    assert text.splitlines()[:2] == [
        "    0.50 times as fast: copy on_device_GBps: 100, now 50",
        "    2.00 times as fast: launch, us: 2, now 1",
    ]
    assert figures.comparison(measured(2, 100), measured(2.1, 101)) == (
        "2 figures changed by at most 10% since 2026-01-01T00:00.\n"
    )


def test_figures_of_another_gpu_are_not_compared():
    other = document_of() | {"device": "T4"}
    assert figures.comparison(other, document_of()) == "The last figures are of another GPU, T4: not compared.\n"
    assert figures.comparison(None, document_of()) == ""


def test_a_file_that_is_no_document_counts_as_none(tmp_path):
    file = tmp_path / "gpu.json"
    assert figures.read(file) is None
    for text in ("", "[1]", "{"):
        file.write_text(text)
        assert figures.read(file) is None


def test_the_summary_counts_what_a_part_left_out():
    lines = figures.summary(document_of(tests={"left_out": {"memcheck": "not installed"}}, ranks={"equal": True}))
    assert [line.split(" s  ")[1] for line in lines.splitlines()] == ["ok, 1 left out", "ok"]


def test_problems_are_wrong_bytes_and_parts_that_failed():
    document = document_of(a={"equal": True}, b={"equal": False}, c={"failed": "it broke"}, d={"skipped": "no torch"})
    assert figures.problems(document) == ["b: bytes differ", "c: it broke"]
