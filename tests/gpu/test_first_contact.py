"""`make gpu ARGS="--first-contact"` (scripts/first_contact.py), with tiny sizes over the fake driver."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from program import needs_devices

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
from bench.gpu.steps import NoGpu, Runner, Step  # noqa: E402

import first_contact as script  # noqa: E402

pytestmark = needs_devices

SYSTEM_PYTHON = "/usr/bin/python3"  # has no torch, nor any package of .venv
FEW = ["--formats", "minmax:bits=4", "none of bfloat16", "--suites", "ShadowPoolTest", "--streams", 1, 4]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QCCL_", "FAKE_CUDA", "PYTHON"))}
    return kept | variables


def first_contact(out: Path, *flags: object, before: tuple[object, ...] = (), **variables: str):
    command = [*before, SYSTEM_PYTHON, ROOT / "scripts" / "run_gpu.py", "--first-contact", "--rehearse", "--out", out]
    words = [str(word) for word in [*command, *flags]]
    return subprocess.run(words, env=environment(**variables), capture_output=True, text=True, timeout=110)


def results(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def ends(out: Path) -> dict[tuple[str, str], str]:
    return {(each["part"], each["name"]): each["outcome"] for each in results(out)}


def can_be_offline() -> bool:
    unshare = ["unshare", "--map-root-user", "--net", "--mount", "true"]
    return shutil.which("unshare") is not None and subprocess.run(unshare, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_be_offline(), reason="unshare can't make namespaces here")
def test_all_of_it_runs_where_nothing_can_be_installed_and_there_is_no_network(tmp_path):
    calls, out, misuses = tmp_path / "calls", tmp_path / "out", tmp_path / "misuses"
    offline = ["unshare", "--map-root-user", "--net", "--mount", SYSTEM_PYTHON, ROOT / "tests" / "gpu" / "offline.py"]
    flags = " ".join(f"'{word}'" for word in ["--first-contact", "--rehearse", "--out", out, *FEW])
    command = [*offline, calls, "make", "--directory", ROOT, "gpu", f"ARGS={flags}"]
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env=environment(FAKE_CUDA_MISUSES=str(misuses)), capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not calls.exists(), calls.read_text()
    assert not misuses.exists(), misuses.read_text()
    assert sorted(file.name for file in out.iterdir()) == ["log.txt", "results.jsonl", "table.txt"]
    parts = {each["part"] for each in results(out) if each["outcome"] == "ok"}
    assert parts == {"doctor", "bytes", "figures", "tests", "ranks", "gates", "nccl"}
    why = {each["part"]: each["why"] for each in results(out) if each["outcome"] == "left out"}
    assert why.keys() == {"sanitizers", "torch", "ddp", "nccl", "ncu"}
    assert why["torch"] == why["ddp"] == f"{SYSTEM_PYTHON}: it has no torch"
    table = (out / "table.txt").read_text()
    assert table in done.stdout
    assert re.search(r"^GB/s with 16 64 132 1056 blocks", table, re.MULTILINE)
    rates = r"[\d.]+/[\d.]+/[\d.]+/[\d.]+ \(\d+ %\)"
    assert re.search(rf"^  minmax:bits=4 +encode {rates}  reduce {rates}  decode {rates}$", table, re.MULTILINE)
    assert "tests: 4 passed, 0 failed, 0 left out" in table
    assert f"  streams --streams 4 connections: {script.CONNECTIONS[0]}: streams wait" in table


def test_a_format_whose_bytes_differ_is_not_timed_and_the_others_are(tmp_path):
    done = first_contact(tmp_path, "--parts", "bytes", "figures", *FEW, "--plant", "minmax:bits=4")
    assert done.returncode == 1 and "FAILED: 1 steps, after" in done.stdout
    found = ends(tmp_path)
    assert found["bytes", "minmax:bits=4"] == "FAILED" and found["bytes", "none of bfloat16"] == "ok"
    assert found["figures", "minmax:bits=4"] == "left out" and found["figures", "none of bfloat16"] == "ok"
    table = (tmp_path / "table.txt").read_text()
    assert "  FAILED: minmax:bits=4: exit code 1: " in table and "  left out it failed in bytes: minmax:bits=4" in table
    assert "DIFFERENT BYTES" in (tmp_path / "log.txt").read_text()


def test_kernels_run_under_each_sanitizer_and_an_encode_under_nsight_compute(tmp_path):
    tools, out = tmp_path / "tools", tmp_path / "out"
    tools.mkdir()
    for name, script_text in (
        ("compute-sanitizer", '#!/bin/sh\n[ "$2" = racecheck ] && exit 9\nshift 4\nexec "$@"\n'),
        ("ncu", "#!/bin/sh\necho ncu $*\n"),
    ):
        (tools / name).write_text(script_text)
        (tools / name).chmod(0o755)
    done = first_contact(out, "--parts", "sanitizers", "ncu", PATH=f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 1
    names = ("own_type", "raw", "cast", "minmax", "block_int", "sign", "grid_forms", "grid")
    kernels = [f"qccl_{name}" for name in names]
    expected = {("sanitizers", f"memcheck, {kernel}"): "ok" for kernel in kernels}
    expected |= {("sanitizers", f"racecheck, {kernel}"): "FAILED" for kernel in kernels}
    assert ends(out) == expected | {("ncu", "minmax:bits=4 encode"): "ok", ("ncu", "its pages"): "ok"}
    assert f"--export {out}/encode {script.ROOT}/build/bench/gpu_kernels" in (out / "log.txt").read_text()


def test_steps_for_which_no_time_is_left_are_named(tmp_path):
    done = first_contact(tmp_path, "--parts", "bytes", "ranks", *FEW, "--seconds", 1)
    assert done.returncode == 0
    assert {(each["outcome"], each["why"]) for each in results(tmp_path)} == {("left out", "for lack of time")}
    assert len(results(tmp_path)) == 3


@pytest.mark.parametrize(("part", "flag"), [("bytes", "--formats"), ("tests", "--suites")])
def test_a_name_that_there_is_not_is_2_with_those_that_there_are(part, flag, tmp_path):
    done = first_contact(tmp_path, "--parts", part, flag, "zip")
    assert done.returncode == 2
    assert done.stderr.startswith(f"run_gpu: {flag} zip: there is none; there are ")


def test_without_a_driver_it_is_3_in_the_loaders_words(tmp_path):
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a GPU's driver")
    except OSError:
        command = [SYSTEM_PYTHON, ROOT / "scripts" / "run_gpu.py", "--first-contact", "--out", tmp_path]
        words = [str(word) for word in [*command, "--build", ROOT / "build"]]
        done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 3
        assert done.stderr.startswith("run_gpu: no GPU: gpu_kernels: no GPU: ") and "libcuda.so.1" in done.stderr


def test_the_pack_has_every_program_that_runs():
    pack = (ROOT / "scripts" / "pack_gpu.sh").read_text()
    packed = re.search(r"^programs=\((.*?)\)", pack, re.MULTILINE | re.DOTALL)[1].split()
    source = (ROOT / "scripts" / "first_contact.py").read_text()
    paths = re.findall(r"""self\.build((?: / ["'][^"']+["'])+)""", source)
    used = ["/".join(re.findall(r"""["']([^"']+)["']""", path)) for path in paths]
    assert set(used) - {"python", "lib", "nccl"} == set(packed)


def test_libraries_that_the_machine_lacks_come_from_the_pack_and_no_others(tmp_path):
    (tmp_path / "lib").mkdir()
    for name in ("libc.so.6", "libqccl_nowhere.so.9"):
        (tmp_path / "lib" / name).write_text("")
    contact = script.Contact(script.parse_arguments(["--build", str(tmp_path), "--out", str(tmp_path / "out")]))
    folder = Path(contact.runner.environment["LD_LIBRARY_PATH"].split(":")[0])
    assert [(each.name, each.resolve().parent) for each in folder.iterdir()] == [
        ("libqccl_nowhere.so.9", tmp_path / "lib")
    ]


# ---- the runner of steps


def runner(folder: Path) -> Runner:
    return Runner(folder, dict(os.environ), lambda results: f"{len(results)} results\n")


def soon() -> float:
    return time.monotonic() + 30


def test_a_step_that_hangs_is_ended_with_what_it_started_and_later_ones_run(tmp_path):
    steps = runner(tmp_path)
    child = tmp_path / "child"
    hung = steps.run("a", Step("hang", ["sh", "-c", f"sleep 1000 & echo $! >{child}; echo begun; wait"], 2), soon())
    assert (hung.outcome, hung.why) == ("FAILED", "did not end within 2 s")
    stat = Path("/proc", child.read_text().strip(), "stat")
    deadline = soon()
    while stat.exists() and stat.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        os.sched_yield()
    assert time.monotonic() < deadline
    assert steps.run("a", Step("next", ["true"], 5), soon()).outcome == "ok"
    assert [each["name"] for each in results(tmp_path)] == ["hang", "next"]
    assert "begun\n" in (tmp_path / "log.txt").read_text()
    assert (tmp_path / "table.txt").read_text() == "2 results\n"


def test_each_result_is_written_before_the_next_step_begins(tmp_path):
    steps = runner(tmp_path)
    count = ["sh", "-c", f"wc -l <{tmp_path}/results.jsonl"]
    assert [steps.run("a", Step("count", count, 5), soon()).output.strip() for _ in range(3)] == ["0", "1", "2"]


def test_a_step_that_fails_is_told_by_its_last_line(tmp_path):
    failed = runner(tmp_path).run("a", Step("fail", ["sh", "-c", "echo why >&2; exit 7"], 5), soon())
    assert (failed.outcome, failed.why) == ("FAILED", "exit code 7: why")
    missing = runner(tmp_path).run("a", Step("missing", [tmp_path / "nothing"], 5), soon())
    assert missing.outcome == "FAILED" and "No such file" in missing.why


def test_a_program_that_finds_no_gpu_ends_the_run_unless_there_was_one_before(tmp_path):
    none = Step("none", ["sh", "-c", "echo no device; exit 3"], 5)
    steps = runner(tmp_path)
    with pytest.raises(NoGpu, match="no device"):
        steps.run("a", none, soon())
    steps.run("a", Step("one", ["true"], 5), soon())
    assert steps.run("a", none, soon()).why == "exit code 3: no device"


# ---- the tests of tests/gpu


def test_tests_of_a_suite_that_fails_run_again_each_in_a_process_of_its_own_after_all_suites(tmp_path):
    program = tmp_path / "tests" / "gpu_tests"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\ncase $1 in\n"
        "--gtest_list_tests) printf 'S.\\n  a\\n  b/shm  # GetParam() = 1\\n  c\\nT.\\n  a\\n' ;;\n"
        "'--gtest_filter=S.*') printf 'passed: S.a\\nFAILED: S.b/shm\\nit broke\\n'; exit 1 ;;\n"
        '*) echo "passed: ${1#*=}" ;;\nesac\n'
    )
    program.chmod(0o755)
    contact = script.Contact(script.parse_arguments(["--build", str(tmp_path), "--out", str(tmp_path / "out")]))
    contact.run_part("tests", soon())
    names = [(each["name"], each["outcome"]) for each in results(tmp_path / "out")]
    assert names == [("S", "FAILED"), ("T", "ok"), ("S.b/shm", "ok"), ("S.c", "ok")]
    assert "tests: 4 passed, 0 failed, 0 left out" in (tmp_path / "out" / "table.txt").read_text()


def test_why_a_test_was_left_out_is_kept():
    said = "passed: S.a\nleft out: S.b: only the fake driver can have a hazard: on order\nFAILED: S.c\nmessage\n"
    assert script.ends_of_tests(said) == {
        "passed": ["S.a"], "failed": ["S.c"], "left_out": {"S.b": "only the fake driver can have a hazard: on order"}
    }  # fmt: skip


def test_losses_through_nccls_interface_are_compared(tmp_path, monkeypatch):
    losses = iter([[5, 4], [5, 3], [5, 4.1]])
    contact = script.Contact(script.parse_arguments(["--out", str(tmp_path)]))
    monkeypatch.setattr(script, "NCCL_CASES", [])
    monkeypatch.setattr(script.Contact, "lacks_torch", lambda *_: False)

    def training(_self, _program, flags, variables, name):
        row = json.dumps({"ranks": 2, "losses": next(losses)})
        return Step(name, ["echo", "ROW", row], 5, reads=script.rows_of_ranks)

    monkeypatch.setattr(script.Contact, "training", training)
    contact.run_part("nccl", soon())
    (wrong,) = [each for each in results(tmp_path) if each["outcome"] == "FAILED"]
    assert wrong["name"] == "losses" and "differ by more than 0.001" in wrong["why"]


def test_help_lists_its_own_options():
    command = [SYSTEM_PYTHON, str(ROOT / "scripts" / "run_gpu.py"), "--first-contact", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert said.returncode == 0 and "--rehearse" in said.stdout
