"""The checks of examples/interface.cc and examples/onebit.cc, and their failure on wrong results; examples/growing.cc
and examples/outer_loop.cc.

test_launchers_page.py starts interface under every launcher.
"""

import contextlib
import os
import re
import signal
import subprocess
import time

import pytest
from launchers import TORCHRUN, execute, mpirun
from program import PROGRAM, ROOT

EXAMPLES = ROOT / "build" / "examples"
INTERFACE = (EXAMPLES / "interface",)
ONEBIT = (EXAMPLES / "onebit", "--count", "100003")
GROWING = EXAMPLES / "growing"
DEADLINE_SECONDS = 60
CHECKS = ["all_reduce", "all_reduce (max)", "reduce_scatter", "all_gather", "broadcast"]
TYPES = ["float32", "float64", "int32", "int64"]


def qccl_run(ranks: int) -> tuple:
    return (PROGRAM, "run", "-n", ranks, "--")


def torchrun(ranks: int) -> tuple:
    return (*TORCHRUN, "--standalone", f"--nproc-per-node={ranks}", "--no-python")


def open_mpi(ranks: int) -> tuple:
    return (*mpirun("Open MPI"), "-n", ranks)


def mpich(ranks: int) -> tuple:
    return (*mpirun("MPICH"), "-n", ranks)


launchers = pytest.mark.parametrize("launcher", [qccl_run, torchrun, open_mpi, mpich])


def test_interface_checks_every_collective_of_every_type():
    done = execute(*qccl_run(4), *INTERFACE)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for check in CHECKS:
        for type_name in TYPES:
            assert f"{check} of {type_name}".ljust(28) + " passed" in lines
    assert lines[-2:] == ["barrier".ljust(28) + " passed", "4 ranks: passed"]


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_interface_passes_in_other_worlds_and_over_each_transport(ranks, transport):
    done = execute(*qccl_run(ranks), *INTERFACE, QCCL_TRANSPORT=transport)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ranks} ranks: passed" in done.stdout


@launchers
def test_onebit_agrees_with_its_simulation(launcher):
    done = execute(*launcher(3), *ONEBIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100003 floats, 3 ranks" in done.stdout and done.stdout.rstrip().endswith("passed")


# interface rejects lossy sums as wrong, and for onebit they break the simulation.
def test_wrong_results_are_failures():
    wrong = {"QCCL_COMPRESSION": "minmax:bits=2"}
    done = execute(*qccl_run(4), *INTERFACE, **wrong)
    assert done.returncode == 1, done.stdout
    assert "all_reduce of float32".ljust(28) + " FAILED on rank 0 1 2 3" in done.stdout
    assert "all_gather of float32".ljust(28) + " passed" in done.stdout
    assert "4 ranks: FAILED" in done.stdout
    done = execute(*qccl_run(3), *ONEBIT, **wrong)
    assert done.returncode == 1, done.stdout
    assert done.stdout.rstrip().endswith("FAILED")


@pytest.mark.parametrize("arguments", [["--count"], ["--count", 0], ["--count", -4], ["--count", "4x"]], ids=str)
def test_arguments_that_make_no_sense_are_refused(arguments):
    done = execute(EXAMPLES / "onebit", *arguments)
    assert done.returncode == 2 and "usage: onebit" in done.stderr


@contextlib.contextmanager
def members(count, folder, ranks, **variables):
    """Ranks of an open job under `qccl run`, whose door is in `folder`; ends with it."""
    command = [str(PROGRAM), "run", "-n", str(count), "--", str(GROWING), str(folder / "doors"), str(ranks)]
    job = subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, cwd=folder)
    try:
        yield job
    finally:
        with contextlib.suppress(ProcessLookupError):
            job.send_signal(signal.SIGTERM)
        job.communicate(timeout=DEADLINE_SECONDS)


def door_in(folder, job):
    """The door, once rank 0 has written it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline and job.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            if door := (folder / "doors").read_text():
                return door
        os.sched_yield()
    raise AssertionError("no member has opened a door")


def last_steps(output):
    return [line.split(": ")[1] for line in sorted(output.splitlines()) if line.startswith("rank ")]


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_newcomers_under_another_run_join_and_take_the_model_over(transport, tmp_path):
    key = tmp_path / "key"
    assert execute(PROGRAM, "key", key).returncode == 0
    variables = {"QCCL_KEY_FILE": str(key), "QCCL_TRANSPORT": transport}
    with members(2, tmp_path, 4, **variables) as job:
        joined = execute(
            PROGRAM, "run", "-n", 2, "--", GROWING, tmp_path / "doors", 4, QCCL_JOIN=door_in(tmp_path, job), **variables
        )
        output, _ = job.communicate(timeout=DEADLINE_SECONDS)
        assert (joined.returncode, job.returncode) == (0, 0), joined.stderr
    steps = last_steps(output + joined.stdout)
    assert len(steps) == 4 and len(set(steps)) == 1, steps


def test_a_process_without_the_jobs_key_stays_outside(tmp_path):
    with members(1, tmp_path, 2) as job:  # with a key of its own
        refused = execute(GROWING, tmp_path / "doors", 2, QCCL_JOIN=door_in(tmp_path, job))
        assert refused.returncode == 1 and "QCCL_KEY_FILE" in refused.stderr
        assert job.poll() is None, "the job goes on"


def test_outer_loop_ends_near_the_line_that_the_samples_are_of():
    done = execute(*qccl_run(4), EXAMPLES / "outer_loop")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(r"4 ranks, 11 rounds, (\d+) bytes sent by rank 0, mean squared error (\d\.\d+)\n", done.stdout)
    assert found, done.stdout
    codes = 10 * 2 * 3 / 4 * 4096 / 2  # 10 rounds, in each of which three quarters go out twice, at 4 bits a value
    assert codes < int(found[1]) < 2 * codes
    assert float(found[2]) < 0.02  # noise of 1, averaged over steps and ranks
