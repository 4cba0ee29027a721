"""The reports of qccl::testing about ranks that fail: runs each intended failure and checks its output."""

import os
import re
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("QCCL_BUILD", ROOT / "build")) / "tests" / "intended_failures"
DEADLINE = 120  # seconds until a test gives up on a process; nothing waits for it to pass
MARK = "QCCL_TEST_JOB"
STARTS = ["fork", "spawn"]


def processes(mark: str) -> list[int]:
    """All processes that inherited the mark and have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass  # gone, or not ours
    return found


def wait_until(is_so) -> None:
    """Polls, because a process can't wait for one that is not its child."""
    deadline = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start(name: str, mark: str) -> subprocess.Popen:
    return subprocess.Popen(
        [PROGRAM, f"--gtest_filter={name}"],
        env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(name: str) -> tuple[int, str]:
    """Exit code and output of one test. No process of it remains afterwards."""
    mark = uuid.uuid4().hex
    process = start(name, mark)
    try:
        output, _ = process.communicate(timeout=DEADLINE)
        assert "Running 1 test" in output, output
        wait_until(lambda: processes(mark) == [])  # killed processes disappear a moment later
        return process.returncode, output
    finally:
        process.kill()
        for pid in processes(mark):
            os.kill(pid, signal.SIGKILL)


def failed(name: str) -> str:
    code, output = run(name)
    assert code == 1, output
    assert "[  FAILED  ] 1 test" in output, output
    return output


def skipped(name: str) -> str:
    code, output = run(name)
    assert code == 0, output
    assert "[  SKIPPED ] 1 test" in output, output
    return output


@pytest.mark.parametrize("start", STARTS)
def test_failed_assertion_is_told_with_rank_line_and_output(start):
    output = failed(f"Intended/Started.assertion_fails_in_rank_1/{start}")
    assert re.search(r"intended_failures\.cc:\d+: Failure\nrank 1: Expected equality of these values:", output), output
    assert "two and two" in output and "fatal" in output and "never reached" not in output
    assert "rank 1 of 3 failed and exited with code 10" in output
    assert "    | here speaks rank 1" in output
    assert "here speaks rank 0" not in output  # it did not fail
    assert "ranks did not end with the same code: ranks 0, 2 exited with code 0; rank 1 exited with code 10" in output
    assert "the test goes on" in output


@pytest.mark.parametrize("start", STARTS)
def test_exception_is_told(start):
    output = failed(f"Intended/Started.exception_leaves_rank_0/{start}")
    assert "rank 0: threw: no such cheese" in output


def test_the_librarys_error_is_told_with_its_kind():
    output = failed("Intended.error_of_the_library_leaves_rank_0")
    assert "rank 0: threw invalid_argument: " in output


@pytest.mark.parametrize("start", STARTS)
def test_crash_is_told_with_signal_and_stack(start):
    output = failed(f"Intended/Started.rank_1_aborts/{start}")
    assert "rank 1 of 2 was killed by signal 6 (Aborted) before its function returned" in output
    assert "stack at signal 6:" in output
    assert re.search(r"#\d+ .*rank_1_aborts.* at intended_failures\.cc:\d+", output), output


@pytest.mark.parametrize("start", STARTS)
def test_hang_is_told_with_stack_and_points(start):
    output = failed(f"Intended/Started.rank_0_hangs/{start}")
    assert "rank 0 of 2 did not end: the deadline of 4 s passed" in output
    assert re.search(r"thread \d+ \(intended_failur\), state S", output), output
    assert re.search(r"#\d+ .*stay_here_for_ever\(\) at intended_failures\.cc:\d+", output), output
    assert "it had reached: 'before'" in output
    assert "rank 1 of 2" not in output


def test_hang_in_a_collective_is_told_with_the_librarys_state():
    output = failed("Intended.rank_1_hangs_in_a_collective")
    rank_1 = output[output.index("rank 1 of 2 did not end") :]
    assert "group 'world': rank 1 of 2" in rank_1, output
    assert re.search(r"in flight: all_reduce\(.*\) #\d+ waits for rank 0 \(got 0 of \d+ bytes\)", rank_1), output


def test_rank_that_waits_for_one_that_failed_is_ended_after_the_grace():
    output = failed("Intended.rank_1_hangs_after_rank_0_has_failed")
    assert "rank 1 of 2 did not end: 1.5 s had passed since rank 0 exited with code 10" in output
    assert "stay_here_for_ever" in output


def test_stopped_rank_is_told_as_stopped():
    output = failed("Intended.rank_1_is_stopped_by_somebody")
    assert "rank 1 of 2 did not end" in output
    assert re.search(r"thread \d+ \(\S+\), state T", output), output


@pytest.mark.parametrize("start", STARTS)
def test_codes_that_differ_are_told(start):
    output = failed(f"Intended/Started.rank_2_exits_with_3/{start}")
    assert "rank 2 of 3 exited with code 3 before its function returned" in output
    assert "ranks did not end with the same code: ranks 0, 1 exited with code 0; rank 2 exited with code 3" in output


@pytest.mark.parametrize("start", STARTS)
def test_early_end_is_told_though_its_code_is_0(start):
    output = failed(f"Intended/Started.rank_1_exits_with_0_too_early/{start}")
    assert "rank 1 of 2 exited with code 0 before its function returned" in output


@pytest.mark.parametrize("start", STARTS)
def test_all_ranks_that_skip_skip_the_test_with_the_reason(start):
    output = skipped(f"Intended/Started.all_ranks_skip/{start}")
    assert ": Skipped\nworld_too_small: needs 8 ranks and has 2" in output


def test_googletests_own_skip_is_one_too():
    assert "other: it is a Sunday" in skipped("Intended.all_ranks_skip_by_googletest")


@pytest.mark.parametrize("start", STARTS)
def test_skip_of_one_rank_is_a_failure(start):
    output = failed(f"Intended/Started.rank_0_alone_skips/{start}")
    assert "rank 0 of 2 skipped (not_root: needs root), but not all ranks did" in output
    assert "rank 0 exited with code 74" in output


def test_fault_that_did_not_happen_is_told():
    output = failed("Intended.fault_never_happens")
    assert "kill of rank 1 at point 'nowhere' did not happen: the rank never reached it, only somewhere" in output
    output = failed("Intended.cut_finds_no_connection")
    assert "cut of rank 1 at point 'here' did not happen: it had no connection" in output


def test_second_job_of_a_spawned_test_is_the_one_that_fails():
    output = failed("Intended.second_job_of_a_spawned_test_fails")
    assert output.count("second job") == 1 and "rank 1: " in output


def test_spawned_rank_that_never_begins_is_told():
    output = failed("Intended.a_spawned_rank_never_comes_to_its_job")
    assert "before it began: its process never reached run_ranks()" in output


def test_output_without_end_fills_no_memory():
    output = failed("Intended.rank_1_prints_and_never_stops")
    assert "all work and no play" in output and len(output) < 3 << 20


def test_children_of_ranks_end_with_the_test():
    code, output = run("Intended.ranks_leave_children_behind")
    assert code == 0, output


def test_nothing_outlives_a_test_that_is_killed():
    mark = uuid.uuid4().hex
    process = start("Intended.test_is_killed_while_ranks_run", mark)
    try:
        # The test, its guard (which shares the test's environment), two ranks and their children.
        wait_until(lambda: len(processes(mark)) == 6)
        process.kill()
        wait_until(lambda: processes(mark) == [])
    finally:
        process.kill()
        process.communicate()
        for pid in processes(mark):
            os.kill(pid, signal.SIGKILL)
