"""What an operator sees of a job: `qccl ps --job`, `--stacks`, `qccl top`, metrics, and the line at its end."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from program import PROGRAM, Job, environment, run
from prometheus_client.parser import text_string_to_metric_families
from test_ps import LATE, busy
from test_run import wait_until

# Ranks that make 8 compressed sums in the group of all and one in a group of their own name, then wait for a line.
TRAINS = """
import torch, torch.distributed as dist, qccl
dist.init_process_group("qccl", pg_options=qccl.Options(compression="minmax:bits=4"))
pair = dist.new_group([0, 1], group_desc='a "pair" \\\\ of ranks')
for _ in range(8): dist.all_reduce(torch.ones(1 << 20))
dist.all_reduce(torch.ones(3), group=pair)
dist.barrier()
if rank == "0":
    print("trained")
    sys.stdin.readline()
dist.barrier()
dist.destroy_process_group()
"""


def jobs_seen(*flags: str, **variables: str) -> list[dict]:
    done = run("ps", "--json", *flags, **variables)
    return json.loads(done.stdout) if done.returncode == 0 else []


def seen(job: Job, *flags: str) -> dict | None:
    """The job as `qccl ps --json` has it; other jobs may run on the machine."""
    processes = set(job.ranks().values())
    of_job = [each for each in jobs_seen(*flags) if processes & {rank["process"] for rank in each["ranks"]}]
    return of_job[0] if of_job else None


def part_of(text: str, job_id: str) -> str:
    """What `qccl ps --job` printed of the job."""
    return re.search(rf"^job {job_id}, .*?(?=^job |\Z)", text, re.MULTILINE | re.DOTALL).group()


# ---- qccl ps --job


def test_the_headline_names_the_rank_that_has_not_called():
    with Job(3, LATE, stdin=subprocess.PIPE) as job:
        assert job.read_lines(1) == ["joined"]

        def held_up() -> dict | None:
            found = seen(job, "--job")
            return found if found and found["hold_up"]["waiting"] == [1, 2] else None

        found = wait_until(held_up)
        assert found["hold_up"]["rank"] == 0 and found["hold_up"]["seconds"] >= 0.25
        assert [rank["answered"] for rank in found["ranks"]] == [True] * 3
        text = part_of(run("ps", "--job").stdout, found["job"])
        first, headline, _, header, *rows = text.splitlines()
        assert first.endswith(", 3 ranks on 1 host")
        assert re.fullmatch(
            r"ranks 1, 2 wait for rank 0 on \S+, which has not called barrier #\d+ of 'world'; its last call, \w+ #\d+ "
            r"of 'world', ended [\d.]+ s ago",
            headline,
        )
        assert header.split() == "rank host call bytes for waits for sent resent saved".split()
        assert re.match(r" +0  \S+ +no call since \w+ #\d+ of 'world' ", rows[0])
        assert all(re.match(rf" +{rank}  \S+ +barrier #\d+ of 'world' .* s  0  ", rows[rank]) for rank in (1, 2))
        assert job.end("go\n")[0] == 0


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_stopped_rank_is_named_and_the_others_tell_all(transport):
    with Job(4, busy(1 << 18), "--transport", transport) as job:
        wait_until(lambda: (found := seen(job, "--job")) and all(rank["counters"] for rank in found["ranks"]))
        os.kill(job.ranks()[2], signal.SIGSTOP)

        def stopped() -> dict | None:
            found = seen(job, "--job")
            return found if found and found["hold_up"]["rank"] == 2 else None

        found = wait_until(stopped)
        assert found["hold_up"]["waiting"] == [0, 1, 3]
        assert "which does not answer; it was last heard of " in found["hold_up"]["text"]
        assert [rank["state"] == "T" for rank in found["ranks"]] == [False, False, True, False]
        sums = [each for each in found["ranks"][0]["counters"] if each["operation"] == "all_reduce"]
        assert sums[0]["calls"] > 0 and sums[0]["bytes"] >= sums[0]["calls"] * (1 << 20)
        lines = found["ranks"][0]["lines"]
        assert sorted(line["peer"] for line in lines) == ([1, 2, 3] if transport == "tcp" else [])
        assert all(line["acknowledged_bytes"] > 0 and line["busy_seconds"] > 0 for line in lines)
        os.kill(job.ranks()[2], signal.SIGCONT)


def test_without_ranks_all_forms_say_so():
    for words in (["ps", "--job"], ["ps", "--json"], ["ps", "--stacks"], ["top"]):
        done = run("ps", "--json")
        if done.returncode == 0:
            pytest.skip("another job runs on this machine")
        done = run(*words)
        assert done.returncode == 1 and "no process on this host has joined" in done.stderr


# ---- qccl ps --stacks


def test_stacks_are_py_spys_of_the_rank_that_holds_others_up(tmp_path):
    spy = tmp_path / "py-spy"
    spy.write_text('#!/bin/sh\necho "$@"\n')
    spy.chmod(0o755)
    with Job(2, LATE, stdin=subprocess.PIPE) as job:
        assert job.read_lines(1) == ["joined"]
        wait_until(lambda: (found := seen(job, "--job")) and found["hold_up"]["rank"] == 0)
        pid = job.ranks()[0]
        shown = run("ps", "--stacks", PATH=f"{tmp_path}:{os.environ['PATH']}").stdout
        assert f"\nrank 0, process {pid}:\ndump --pid {pid}\n" in shown
        missing = run("ps", "--stacks", PATH=str(tmp_path / "nowhere"))
        assert missing.returncode == 1
        assert f"py-spy is not installed here, so there is no stack of process {pid}: pip install" in missing.stderr
        spy.write_text("#!/bin/sh\nexit 3\n")
        failed = run("ps", "--stacks", PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert failed.returncode == 1 and f"py-spy has no stack of process {pid}" in failed.stderr
        assert job.end("go\n")[0] == 0


# ---- qccl top


def test_top_shows_the_job_again_and_again():
    with Job(2, busy(1 << 16)) as job:
        job_id = wait_until(lambda: seen(job, "--job"))["job"]
        command = [PROGRAM, "top", "--every", "0.1"]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as top:
            screen = ""
            while screen.count(f"job {job_id}, 2 ranks on 1 host\n") < 2:
                screen += top.stdout.readline()
            top.kill()
        assert screen.count("\x1b[H\x1b[J") >= 2, "each begins at the top of an empty terminal"


# ---- metrics


def families_of(file: Path) -> dict:
    return {family.name: family for family in text_string_to_metric_families(file.read_text())}


def test_metrics_are_written_while_the_job_runs_and_go_with_it(tmp_path):
    settings = {"QCCL_METRICS_FILE": str(tmp_path / "qccl.prom"), "QCCL_METRICS_SECONDS": "0.05"}
    with Job(2, TRAINS, stdin=subprocess.PIPE, **settings) as job:
        assert job.read_lines(1) == ["trained"]
        file = tmp_path / "qccl-1.prom"

        def sums() -> list | None:
            samples = families_of(file)["qccl_calls"].samples if file.exists() else []
            found = [s for s in samples if s.labels["collective"] == "AllReduce"]
            return found if len(found) == 2 else None

        in_world, in_pair = sorted(wait_until(sums), key=lambda sample: -sample.value)
        assert in_world.name == "qccl_calls_total" and in_world.value == 8 and in_pair.value == 1
        assert in_world.labels["rank"] == "1" and in_world.labels["nranks"] == "2"
        assert in_world.labels["pid"] == str(job.ranks()[1]) and in_world.labels["hostname"]
        families = families_of(file)
        kinds = {family.type for family in families.values()}
        assert kinds == {"counter", "gauge"} and all(family.documentation for family in families.values())
        plain, sent = (
            next(s.value for s in families[name].samples if s.labels["comm_name"] == in_world.labels["comm_name"])
            for name in ("qccl_call_plain_bytes", "qccl_call_payload_bytes")
        )
        assert 6 < plain / sent < 8.1, "4 bits and the buckets' scales, of 32"
        assert families["qccl_saved_bytes"].samples[0].value == plain - sent
        assert sorted(each.name for each in tmp_path.iterdir() if each.suffix == ".prom") == [
            "qccl-0.prom", "qccl-1.prom",
        ]  # fmt: skip
        assert job.end("go\n")[0] == 0
    assert not list(tmp_path.iterdir()), "no stale series stay"


def test_a_place_where_no_metrics_can_be_written_is_an_error_at_the_start(tmp_path):
    file = tmp_path / "no folder" / "qccl.prom"
    done = run("perf", "barrier", "-g", 1, QCCL_METRICS_FILE=str(file))
    assert done.returncode != 0 and "QCCL_METRICS_FILE" in done.stdout + done.stderr


# ---- the line at the end


def end_lines(code: str, ranks: int = 2, **variables: str) -> list[str]:
    with Job(ranks, code, stdin=subprocess.PIPE, **variables) as job:
        _, _, error = job.end("go\n")
    return re.findall(r"^qccl: info: (rank \d+ of \d+: .*)$", error, re.MULTILINE)


def test_the_first_rank_says_at_the_end_what_the_job_did():
    (line,) = end_lines(TRAINS)
    assert re.fullmatch(
        r"rank 0 of 2: 11 calls of 32\.0 MB, sent [\d.]+ MB, saved [\d.]+ MB by compression; in calls [\d.]+ % of "
        r"[\d.]+ s; no warnings",
        line,
    )


@pytest.mark.parametrize("level", ["warning", "error"])
def test_the_line_is_silenced(level):
    assert end_lines(TRAINS, QCCL_LOG=level) == []


def test_no_line_of_a_job_that_did_nothing():
    joined = "import torch.distributed as dist\ndist.init_process_group('qccl')\n"
    assert end_lines(joined + "sys.exit(3)") == []
    assert end_lines(joined + "dist.destroy_process_group()") == []


# ---- the page


def test_the_pages_python_program_runs():
    page = (Path(__file__).parents[2] / "docs" / "see-a-job.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with Job(2, program) as job:
        code, out, error = job.end()
    assert code == 0, error
    assert "qccl/all_reduce/calls 1.0" in out.splitlines()
    for command in re.findall(r"^build/qccl (.*)$", page, re.MULTILINE):
        assert run(*command.split("|")[0].split(), "--help").returncode == 0, command
