"""A program that knows only NCCL, seen from outside: how it ends, and what QCCL's tools and its log say of it."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from program import needs_devices

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "tests" / "nccl" / "nccl_program"
QCCL = ROOT / "build" / "qccl"
LIMIT_SECONDS = 60
LAUNCHERS = re.compile("QCCL_|FAKE_CUDA|RANK|WORLD_SIZE|MASTER_|LOCAL_|OMPI_|PMI|SLURM_|BITS|RING_")


def environment(**variables: str) -> dict[str, str]:
    """Ranks are threads, so a device has all their streams: each with a queue of its own."""
    kept = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}
    return kept | {"CUDA_DEVICE_MAX_CONNECTIONS": "32"} | variables


def run(*command: object, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(part) for part in command],
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
        timeout=LIMIT_SECONDS,
    )


# ---- the end of a process whose streams wait at gates


@needs_devices
@pytest.mark.parametrize(
    ("how", "code"),
    [("return", 0), ("exit", 0), ("exit of a thread", 0), ("_exit", 0), ("quick_exit", 0), ("abort", -6)],
)
def test_a_process_ends_at_once_while_its_streams_wait(how, code):
    ended = run(PROGRAM, "leave", how)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == "the streams wait\n"


@needs_devices
@pytest.mark.parametrize("how", ["destroy at exit", "abort at exit"])
def test_communicators_that_are_ended_at_exit_let_their_streams_go_on(how):
    ended = run(PROGRAM, "leave", how, QCCL_TIMEOUT="1")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("the streams wait\n")
    assert ended.stderr.count("a stream goes on without the result of a call: ") == 2


@needs_devices
def test_each_rank_warns_once_where_streams_share_a_queue_and_results_stay_right():
    devices = PROGRAM.parent / "conformance" / "nccl_devices"
    ended = run(devices, "in_order", CUDA_DEVICE_MAX_CONNECTIONS="1", QCCL_LOG="warning")
    assert ended.returncode == 0, ended.stderr
    warnings = [line for line in ended.stderr.splitlines() if "can't wait for calls, which block the host" in line]
    assert len(warnings) == len(ended.stderr.splitlines()) == 4  # its ranks are threads of one process


# ---- tools


def test_qccl_ps_says_whom_its_calls_wait_for():
    with subprocess.Popen(
        [PROGRAM, "wait"], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout.readline() == "joined\n"
        call = rf"^ +0 +{program.pid}  .*all_reduce\(count=1000, float32, sum\) number 2 of 'world' .*waits for rank 1"
        while not re.search(call, run(QCCL, "ps").stdout, re.MULTILINE):
            assert program.poll() is None
        program.stdin.close()
        assert program.wait(LIMIT_SECONDS) == 0


def test_qccl_doctor_says_what_the_variables_make_of_a_program(tmp_path):
    variables = {"RING_ALLREDUCE_VERSION": "new", "BITS": "5", "bucket_size": "512"}
    said = run(QCCL, "doctor", QCCL_LOG_FILE=f"{tmp_path}/log_", **variables).stdout
    assert re.search(r"^compression +minmax:bits=5,bucket_size=512 from \d+ bytes on$", said, re.MULTILINE), said
    assert re.search(rf"^log +of every operation, to {tmp_path}/log_<rank>\.json$", said, re.MULTILINE), said


# ---- the log


def read_log(file: Path) -> tuple[dict, list[dict]]:
    """The rank that the file is of, and its operations."""
    trace = json.loads(file.read_text())
    (head,) = trace["qccl"]["ranks"]
    return head, [event["args"] for event in trace["traceEvents"] if event["ph"] == "X"]


def test_communicators_of_a_rank_share_its_log(tmp_path):
    (tmp_path / "log_0.json").write_text("of an earlier job")
    assert run(PROGRAM, "join", QCCL_LOG_FILE=f"{tmp_path}/log_").returncode == 0
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["log_0.json", "log_1.json"]
    for rank, file in enumerate(files):
        head, operations = read_log(file)
        assert head["rank"] == rank and head["world"] == 2
        sums = [each for each in operations if each["operation"] == "all_reduce"]
        assert [each["sequence"] for each in sums] == [2, 2, 2, 3]
        groups = [each["group_id"] for each in sums]
        assert groups[1] == groups[3] and len(set(groups)) == 3
        assert all(each["error"] == "" for each in operations)
    summary = run(QCCL, "log", "summary", *files)
    assert summary.returncode == 0, summary.stderr
    assert "rank 0 of 2 on" in summary.stdout and "came last in" in summary.stdout
    assert re.search(r"^all_reduce\n +3\.91 KB +4 ", summary.stdout, re.MULTILINE), summary.stdout
    assert "left out" not in summary.stdout


def test_logs_have_the_rank_that_the_launcher_gave_to_the_process(tmp_path):
    started = run(QCCL, "run", "-n", 2, "--", PROGRAM, "join", QCCL_LOG_FILE=f"{tmp_path}/log_")
    assert started.returncode == 0, started.stderr
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["log_0.json", "log_1.json"]
    for rank, file in enumerate(files):
        head, operations = read_log(file)
        assert head["rank"] == rank
        assert [each["operation"] for each in operations].count("all_reduce") == 2 * 4
