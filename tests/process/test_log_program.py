"""`qccl log` and `qccl trace`, on the logs that programs write if the environment asks for them."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from program import PROGRAM, Job, environment, run
from test_ps import busy
from test_run import wait_until

RANKS = 3


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The logs of three ranks of a program that has no code for logging."""
    folder = tmp_path_factory.mktemp("logs")
    flags = ["-b", "256K", "-e", "1M", "-f", 4, "-n", 5, "-g", RANKS]
    done = run("perf", "all_reduce", *flags, "--compression", "minmax:bits=4", QCCL_LOG_FILE=str(folder / "log_"))
    assert done.returncode == 0, done.stderr
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [f"log_{rank}.json" for rank in range(RANKS)]
    return files


def events(path) -> list[dict]:
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def test_each_rank_writes_every_operation_with_its_times(logs):
    for rank, file in enumerate(logs):
        sums = [event for event in events(file) if event["name"] == "all_reduce" and event["args"]["bytes"] >= 1 << 18]
        assert len(sums) > 2 * 5 and {event["pid"] for event in sums} == {rank}
        for event in sums:
            args = event["args"]
            assert args["posted_ns"] <= args["started_ns"] <= args["ended_ns"]
            assert event["dur"] == pytest.approx((args["ended_ns"] - args["posted_ns"]) / 1e3)
            assert args["compression"].startswith("minmax") and args["plain_bytes"] > 7 * args["payload_bytes"]


def test_merged_traces_have_a_track_for_each_rank_on_one_clock(logs, tmp_path):
    merged = tmp_path / "all.json"
    done = run("trace", "merge", merged, *reversed(logs))
    assert done.returncode == 0, done.stderr
    document = json.loads(merged.read_text())
    assert [head["rank"] for head in document["qccl"]["ranks"]] == list(range(RANKS))
    tracks = {e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert [tracks[rank].split()[:2] for rank in range(RANKS)] == [["rank", str(rank)] for rank in range(RANKS)]
    assert {event["tid"] for event in events(merged)} == {1}, "blocking calls lie in one line"
    assert min(event["ts"] for event in events(merged)) == 0
    first = min(event["args"]["posted_ns"] for event in events(merged))
    for event in events(merged):
        assert event["ts"] == pytest.approx((event["args"]["posted_ns"] - first) / 1e3)
    before = sorted(json.dumps(event["args"]) for file in logs for event in events(file))
    assert sorted(json.dumps(event["args"]) for event in events(merged)) == before
    again = tmp_path / "again.json"
    assert run("trace", "merge", again, merged).returncode == 0
    assert again.read_text() == merged.read_text()


def test_summary_has_latencies_traffic_and_stragglers(logs):
    done = run("log", "summary", *logs)
    assert done.returncode == 0, done.stderr
    assert f"rank 0 of {RANKS} on " in done.stdout
    for words in ("Total Latency(ms)", "p99 Latency(ms)", "Compression Ratio", "Breakdown with straggler effect"):
        assert words in done.stdout
    assert done.stdout.count("came last in") == RANKS
    other = run("log", "summary", "--rank", 1, "--formulas", "deepspeed", *logs)
    assert other.returncode == 0 and f"rank 1 of {RANKS}" in other.stdout
    assert "rank 7 is in none of the files" in run("log", "summary", "--rank", 7, *logs).stderr


def test_csv_has_a_line_for_each_operation(logs, tmp_path):
    out = tmp_path / "out.csv"
    assert run("log", "csv", out, *logs).returncode == 0
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert len(rows) == sum(len(events(file)) for file in logs)
    assert {row["rank"] for row in rows} == {str(rank) for rank in range(RANKS)}
    for row in rows:
        took = (int(row["ended_ns"]) - int(row["posted_ns"])) / 1e6
        assert float(row["latency_ms"]) == pytest.approx(took, abs=1e-6)


def test_a_picture_shows_every_rank_and_operation(logs, tmp_path):
    for name in ("log.png", "it's a log.svg"):
        done = run("log", "plot", tmp_path / name, *logs)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "log.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "it's a log.svg").read_text()
    for words in ("rank 0", "rank 2", "all_reduce, 1 MiB, minmax", "ms since the first operation"):
        assert f"<!-- {words} -->" in drawn, words


@pytest.fixture(scope="module")
def outer_logs(tmp_path_factory):
    """The logs of two ranks of a program that synchronises every H steps."""
    folder = tmp_path_factory.mktemp("outer")
    program = [PROGRAM, "run", "-n", "2", "--", PROGRAM.parent / "examples/outer_loop"]
    done = subprocess.run(
        program, env=environment(QCCL_LOG_FILE=str(folder / "log_")), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


def rounds(path) -> list[dict]:
    found = json.loads(path.read_text())["traceEvents"]
    return [event["args"] | {"rank": event["pid"]} for event in found if event.get("cat") == "qccl round"]


def test_rounds_of_the_outer_loop_are_kept_and_drawn(logs, outer_logs, tmp_path):
    merged = tmp_path / "all.json"
    assert run("trace", "merge", merged, *outer_logs).returncode == 0
    assert rounds(merged) == [each for file in outer_logs for each in rounds(file)]
    assert {each["rank"] for each in rounds(merged)} == {0, 1} and len(rounds(merged)) >= 20
    assert all(each["bytes"] > 0 and each["delta_norm"] > 0 for each in rounds(merged)[:9])
    panels = ("MB sent by a rank in a round", "seconds waited in a round", "% of the time computing")
    norms = "norm: delta, residual (dashed)"
    for file, is_drawn in ((merged, True), (logs[0], False)):
        assert run("log", "plot", tmp_path / "log.svg", file).returncode == 0
        drawn = (tmp_path / "log.svg").read_text()
        assert [f"<!-- {words} -->" in drawn for words in (*panels, norms)] == [is_drawn] * 4
    assert run("log", "plot", tmp_path / "log.svg", merged).returncode == 0
    drawn = (tmp_path / "log.svg").read_text()
    assert drawn.count("<!-- outer round, fragment 0 -->") == 1, "one kind of operation for all rounds"


def test_a_norm_that_is_not_a_number_is_left_out(outer_logs, tmp_path):
    text = re.sub(r'"delta_norm":[\d.e+-]+', '"delta_norm":null', outer_logs[0].read_text(), count=1)
    (tmp_path / "log_0.json").write_text(text)
    assert run("log", "plot", tmp_path / "log.svg", tmp_path / "log_0.json").returncode == 0


def test_long_names_take_no_room_from_what_is_drawn(logs, tmp_path):
    widths = []
    for name in ("all_reduce", "all_reduce | [Caller Func: backward_and_reduce]"):
        file, picture = tmp_path / "log_0.json", tmp_path / "log.svg"
        file.write_text(logs[0].read_text().replace('"name":"all_reduce"', f'"name":"{name}"'))
        assert run("log", "plot", picture, file).returncode == 0
        widths.append(float(re.search(r'width="([\d.]+)pt"', picture.read_text())[1]))
    assert widths[0] == pytest.approx(9 * 72) and widths[1] > 1.2 * widths[0]


def test_without_matplotlib_the_error_says_what_is_missing(logs, tmp_path):
    program = tmp_path / "qccl"
    shutil.copy(PROGRAM, program)
    command = [str(program), "log", "plot", str(tmp_path / "x.png"), str(logs[0])]
    result = subprocess.run(command, env=environment(PATH=str(tmp_path)), capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and "needs a Python with matplotlib" in result.stderr
    assert not (tmp_path / "x.png").exists()


def test_a_picture_that_cannot_have_its_name_is_a_usage_error(logs, tmp_path):
    wrong = {"no/x.png": "there is no directory", "x.gif": ".png, .svg or .pdf", ".": "is a directory"}
    for name, words in wrong.items():
        done = run("log", "plot", tmp_path / name, *logs)
        assert done.returncode == 2 and words in done.stderr, done.stderr


def test_what_is_no_log_is_named(logs, tmp_path):
    (tmp_path / "other.json").write_text('{"traceEvents": []}')
    (tmp_path / "broken.json").write_text(logs[0].read_text()[:-100])
    (tmp_path / "newer.json").write_text('{"qccl": {"version": 2}}')
    (tmp_path / "odd.json").write_text(logs[0].read_text().replace('"type":"float32"', '"type":"float3"'))
    wrong = {
        "other.json": "no log of QCCL",
        "broken.json": "not all of it",
        "none.json": "no such",
        "newer.json": "of version 2",
        "odd.json": "it has 'float3'",
    }
    for file, words in wrong.items():
        done = run("log", "summary", tmp_path / file)
        assert done.returncode == 1 and str(tmp_path / file) in done.stderr and words in done.stderr, done.stderr
    done = run("trace", "merge", tmp_path / "out.json", logs[0], logs[0])
    assert done.returncode == 1 and "has rank 0, as" in done.stderr


def test_a_killed_rank_leaves_an_empty_file_that_is_left_out(logs, tmp_path):
    """Also if an earlier job left its log under the same name."""
    killed = tmp_path / "log_1.json"
    shutil.copy(logs[1], killed)
    with Job(2, busy(1000), QCCL_LOG_FILE=str(tmp_path / "log_")) as job:
        wait_until(lambda: killed.stat().st_size == 0)
        os.kill(job.ranks()[1], signal.SIGKILL)
        assert job.end()[0] == 137
    assert killed.stat().st_size == 0
    done = run("log", "summary", logs[0], killed)
    assert done.returncode == 0 and f"{killed}: empty, left out" in done.stderr, done.stderr
    done = run("log", "summary", killed)
    assert done.returncode == 1 and "there is no log in what was given" in done.stderr


def test_logs_of_jobs_of_different_sizes_are_told_apart(logs, tmp_path):
    """The logs that a job of 3 ranks and a job of 2 with the same prefix leave side by side."""
    flags = ["-b", 64, "-e", 64, "-n", 1, "-g", 2]
    assert run("perf", "all_reduce", *flags, QCCL_LOG_FILE=str(tmp_path / "log_")).returncode == 0
    shutil.copy(logs[2], tmp_path)
    done = run("log", "summary", *sorted(tmp_path.iterdir()))
    words = f"{tmp_path}/log_2.json: of a job of 3 ranks, but {tmp_path}/log_0.json of one of 2: is one of them left"
    assert done.returncode == 0 and words in done.stderr, done.stderr
    assert run("log", "summary", *logs).stderr == ""


def test_usage_errors_name_what_there_is(tmp_path):
    for arguments in (["log"], ["log", "sumary"], ["trace"], ["trace", "join"], ["log", "summary"]):
        done = run(*arguments)
        assert done.returncode == 2 and "qccl" in done.stderr, arguments
    assert "Usage: qccl log" in run("log", "--help").stdout
    assert "Usage: qccl trace merge" in run("trace", "--help").stdout


def test_a_log_that_cannot_be_written_is_an_error_before_anything_runs(tmp_path):
    done = run("perf", "all_reduce", "-b", 64, "-e", 64, "-n", 1, QCCL_LOG_FILE=str(tmp_path / "no" / "log_"))
    assert done.returncode != 0 and f"can't be written to {tmp_path}/no/log_0.json: make its folder" in done.stderr
