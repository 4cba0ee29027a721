"""`qccl run`: the environment of ranks, how a job ends, and that nothing of it stays behind."""

import errno
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job import free_port
from program import DEADLINE, PROGRAM, Job, environment, run, state_of

PYTHON = (sys.executable, "-c")
SAY_READY = "print('ready', rank);"
WAIT = "signal.pause();"
# Waits for signals for ever. A handler runs even if its signal came just before the wait, where pause() would miss it.
WAIT_ON = """
awake, alarm = os.pipe()
os.set_blocking(alarm, False)
signal.set_wakeup_fd(alarm)
while True: os.read(awake, 1)
"""
IGNORE_TERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
# A child of the rank that ignores SIGTERM; the rank goes on once the child runs.
CHILD_CODE = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"grandchild\\n")
os.close(int(sys.argv[1]))
signal.pause()
"""
GRANDCHILD = f"""
there, told = os.pipe()
command = [sys.executable, "-c", {CHILD_CODE!r}, str(told)]
subprocess.Popen(command, pass_fds=[told], start_new_session=OWN_SESSION)
os.close(told)
os.read(there, 1)
"""


def ready(ranks: int) -> list[str]:
    return [f"ready {rank}" for rank in range(ranks)]


def wait_until(condition):
    """Polls until `condition` is true, and returns it; for conditions that the system has no event for."""
    deadline = time.monotonic() + DEADLINE
    while not (answer := condition()):
        assert time.monotonic() < deadline, "this never became true"
        time.sleep(0.005)
    return answer


def bytes_written(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


# ---- the environment of ranks


def test_ranks_get_their_place_in_the_job():
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR OMP_NUM_THREADS".split()
    result = run("run", "-n", 3, "--", *PYTHON, f"import os; print(*(os.environ[n] for n in {names}))")
    assert result.returncode == 0, result.stderr
    expected = [f"{rank} 3 {rank} 3 127.0.0.1 1" for rank in range(3)]
    assert sorted(result.stdout.splitlines()) == expected
    assert result.stderr == ""


def test_ranks_get_the_values_that_torchrun_gives_them():
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR OMP_NUM_THREADS".split()
    show = ("import os, sys; os.write(1, (' '.join(map(os.environ.get, sys.argv[1:])) + '\\n').encode())", *names)
    ours = run("run", "-n", 3, "--", *PYTHON, *show)
    master = ("--master-addr", "127.0.0.1", "--master-port", str(free_port()))
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", *master, "--no-python")
    theirs = subprocess.run(
        [*torchrun, *PYTHON, *show], env=environment(), capture_output=True, text=True, timeout=DEADLINE
    )
    assert ours.returncode == theirs.returncode == 0, ours.stderr + theirs.stderr
    assert sorted(ours.stdout.splitlines()) == sorted(theirs.stdout.splitlines())


def test_omp_num_threads_is_kept_where_it_is_set():
    result = run("run", "-n", 1, "--", "printenv", "OMP_NUM_THREADS", OMP_NUM_THREADS="3")
    assert result.stdout == "3\n"


def test_settings_reach_the_ranks_as_variables():
    flags = ["--link-rate", "1gbit", "--transport", "tcp", "--compression", "minmax:bits=4"]
    names = ["QCCL_LINK_RATE", "QCCL_TRANSPORT", "QCCL_COMPRESSION"]
    result = run("run", "-n", 1, *flags, "--", "printenv", *names)
    assert result.stdout.split() == ["1gbit", "tcp", "minmax:bits=4"]
    assert run("run", "-n", 1, "--", "printenv", *names).stdout == ""


def test_variables_of_an_outer_torchrun_do_not_reach_the_ranks():
    result = run("run", "-n", 1, "--", "printenv", "TORCHELASTIC_USE_AGENT_STORE", TORCHELASTIC_USE_AGENT_STORE="True")
    assert result.stdout == ""


def test_all_ranks_share_one_port_that_a_listener_can_take():
    code = """
import os, socket
port = int(os.environ["MASTER_PORT"])
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::")):
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((address, port))
        listener.listen()
print(port)
"""
    assert run("run", "-n", 1, "--", *PYTHON, code).returncode == 0
    result = run("run", "-n", 3, "--", "printenv", "MASTER_PORT")
    ports = set(result.stdout.split())
    assert len(ports) == 1 and len(result.stdout.split()) == 3
    assert 1024 <= int(ports.pop()) <= 65535


def test_the_port_is_nobody_elses_before_rank_0_listens():
    # Without SO_REUSEADDR bind() fails, so the system does not hand the port out to processes that ask for any port.
    code = """
import os, socket
try:
    socket.socket().bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
except OSError as error:
    print(error.errno)
"""
    result = run("run", "-n", 1, "--", *PYTHON, code)
    assert result.stdout == f"{errno.EADDRINUSE}\n", result.stderr


def test_each_rank_leads_a_process_group_of_its_own():
    result = run("run", "-n", 2, "--", *PYTHON, "import os; assert os.getpgrp() == os.getpid(); print(os.getpid())")
    assert result.returncode == 0, result.stderr
    assert len(set(result.stdout.split())) == 2


def test_rank_0_reads_the_launchers_input_and_the_others_nothing():
    with Job(3, "print(rank, sys.stdin.read())", stdin=subprocess.PIPE) as job:
        out = job.end("words")[1]
    assert sorted(out.splitlines()) == ["0 words", "1 ", "2 "]


def test_ranks_start_with_the_callers_signals_and_mask():
    code = """
line = [line for line in open("/proc/self/status") if line.startswith("SigBlk")][0]
assert int(line.split()[1], 16) == 0, line
"""
    assert run("run", "-n", 1, "--", *PYTHON, code).returncode == 0
    assert run("run", "-n", 1, "--", "sh", "-c", "kill -PIPE $$").returncode == 128 + signal.SIGPIPE


def test_a_rank_can_read_from_the_terminal():
    parent, child = pty.openpty()
    # The other rank has an empty input, and must not end the job by failing to read it.
    code = "import os; os.environ['RANK'] == '0' and print('read', input())"
    command = [str(PROGRAM), "run", "-n", "2", "--", *PYTHON, code]
    os.write(parent, b"typed\n")
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command],
        stdin=child,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        text=True,
    )
    try:
        assert process.stdout.readline() == "read typed\n"
    finally:
        process.kill()
        process.communicate()
        os.close(parent)
        os.close(child)


# ---- output


def test_without_tags_ranks_write_to_the_launchers_own_output():
    with Job(2, "print(os.fstat(1).st_ino, os.fstat(2).st_ino)") as job:
        ours = f"{os.fstat(job.process.stdout.fileno()).st_ino} {os.fstat(job.process.stderr.fileno()).st_ino}"
        assert job.read_lines(2) == [ours, ours]
        assert job.end()[0] == 0


def test_tagged_lines_are_whole_and_stay_on_their_stream():
    # Pieces of lines, written so that the ranks' pieces interleave.
    code = """
for line in range(200):
    for stream in (1, 2):
        os.write(stream, f"{rank}:{stream}:".encode())
        os.write(stream, f"{line}\\n".encode())
"""
    with Job(3, code, "--tag-output") as job:
        returncode, out, err = job.end()
    assert returncode == 0
    for text, stream in ((out, 1), (err, 2)):
        lines = text.splitlines()
        assert sorted(lines) == sorted(f"[{r}]: {r}:{stream}:{i}" for r in range(3) for i in range(200))
        for rank in range(3):
            own = [line for line in lines if line.startswith(f"[{rank}]")]
            assert own == [f"[{rank}]: {rank}:{stream}:{i}" for i in range(200)]


def test_a_last_line_without_an_end_is_tagged_and_ended():
    result = run("run", "-n", 2, "--tag-output", "--", "printf", "a\\nb")
    assert sorted(result.stdout.splitlines(keepends=True)) == ["[0]: a\n", "[0]: b\n", "[1]: a\n", "[1]: b\n"]


def test_much_tagged_output_arrives_complete():
    code = "import sys; sys.stdout.write('x' * 99 + '\\n'); sys.stdout.write(('y' * 99 + '\\n') * 50000)"
    result = run("run", "-n", 2, "--tag-output", "--", *PYTHON, code)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 2 * 50001 and {len(line) for line in lines} == {len("[0]: ") + 99}


def test_a_stalled_reader_of_tagged_output_does_not_keep_the_job_alive():
    with Job(1, "while True: print('x' * 1000)", "--tag-output") as job:
        (watcher,) = wait_until(lambda: job.children(job.pid))
        (rank,) = wait_until(lambda: job.children(watcher))
        # The rank has written more than the pipes hold: nothing reads, and the launcher's own writes have stopped.
        wait_until(lambda: bytes_written(rank) > 1_000_000)
        job.process.terminate()
        wait_until(lambda: state_of(rank) in ("Z", "gone"))
        assert job.end()[0] == 128 + signal.SIGTERM


def test_a_reader_that_leaves_ends_the_ranks_as_sigpipe_would():
    command = f"{PROGRAM} run -n 1 --tag-output -- yes | head -n 1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", command], env=environment(), capture_output=True, text=True, timeout=DEADLINE
    )
    assert result.stdout == "[0]: y\n"
    assert result.returncode == 128 + signal.SIGPIPE


def test_core_binding_gives_each_rank_its_own_cores():
    ranks = min(2, len(os.sched_getaffinity(0)))
    code = "import os; print(os.environ['OMP_NUM_THREADS'], *sorted(os.sched_getaffinity(0)))"
    result = run("run", "-n", ranks, "--bind-to", "core", "--", sys.executable, "-c", code)
    bound = [[*map(int, line.split())] for line in result.stdout.splitlines()]
    assert sorted(core for _, *cores in bound for core in cores) == sorted(os.sched_getaffinity(0))
    assert all(threads == len(cores) for threads, *cores in bound)


def test_env_that_is_not_set_is_an_error():
    result = run("run", "-n", 1, "--env", "NO_SUCH_VARIABLE", "--", "true")
    assert result.returncode == 2 and "'NO_SUCH_VARIABLE' is not set here" in result.stderr
    given = run("run", "-n", 1, "--env", "A=1", "--env", "A=2 3", "--env", "E=", "--", "sh", "-c", 'echo "$A|${E-no}|"')
    assert given.stdout == "2 3||\n"


def test_log_dir_has_a_file_for_each_rank(tmp_path):
    result = run("run", "-n", 2, "--log-dir", tmp_path, "--", "sh", "-c", "echo $RANK; echo e$RANK >&2")
    assert sorted(result.stdout.split()) == ["0", "1"] and sorted(result.stderr.split()) == ["e0", "e1"]
    assert sorted((tmp_path / "rank1.log").read_text().split()) == ["1", "e1"]
    refused = run("run", "-n", 1, "--log-dir", tmp_path / "rank1.log", "--", "true")
    assert refused.returncode == 1 and "for --log-dir" in refused.stderr


# ---- how a job ends


def test_all_well_is_0_and_says_nothing():
    result = run("run", "-n", 4, "--", "true")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_one_failure_ends_the_others_and_its_code_is_the_jobs():
    code = SAY_READY + "sys.exit(7) if rank == '0' and sys.stdin.readline() else signal.pause()"
    with Job(3, code, stdin=subprocess.PIPE) as job:
        assert job.read_lines(3) == ready(3)
        returncode, _, err = job.end("go\n")
        assert job.processes() == []
    assert returncode == 7
    assert len(err.splitlines()) == 1
    assert err.startswith("qccl run: rank 0 (pid ")
    assert err.endswith(") exited with code 7; ending the other ranks: 1 2\n")


def test_the_first_failure_counts_even_if_the_launcher_was_late():
    code = SAY_READY + "signal.signal(signal.SIGUSR1, lambda *_: os._exit(int(rank) + 1)); print(os.getpid());"
    with Job(4, code + WAIT_ON) as job:
        lines = [job.process.stdout.readline().split() for _ in range(8)]
        ranks = {stat_rank(int(line[0])): int(line[0]) for line in lines if len(line) == 1}
        (watcher,) = set(job.children(job.pid))
        os.kill(watcher, signal.SIGSTOP)
        wait_until(lambda: state_of(watcher) == "T")
        for rank in (2, 0, 3, 1):
            os.kill(ranks[rank], signal.SIGUSR1)
            wait_until(lambda pid=ranks[rank]: state_of(pid) == "Z")
        os.kill(watcher, signal.SIGCONT)
        returncode, _, err = job.end()
    assert returncode == 3
    assert err.splitlines()[0].startswith("qccl run: rank 2 ")


def stat_rank(pid: int) -> int:
    with open(f"/proc/{pid}/environ", "rb") as file:
        variables = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    return int(variables[b"RANK"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_rank_killed_by_a_signal_is_128_plus_the_signal(number):
    result = run("run", "-n", 2, "--", "sh", "-c", f'[ "$RANK" = 1 ] && kill -{int(number)} $$; sleep 60')
    assert result.returncode == 128 + number
    assert "qccl run: rank 1 (pid" in result.stderr
    assert f"was killed by signal {int(number)} ({signal.Signals(number).name}" in result.stderr


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace():
    code = IGNORE_TERM + "signal.signal(signal.SIGUSR1, lambda *_: os._exit(3));" + SAY_READY + WAIT_ON
    with Job(2, code, "--grace", "0.3") as job:
        assert job.read_lines(2) == ready(2)
        victim = next(pid for pid in job.processes() if pid_is_rank(pid, 1))
        began = time.monotonic()
        os.kill(victim, signal.SIGUSR1)
        returncode, _, err = job.end()
        assert time.monotonic() - began >= 0.3
        assert job.processes() == []
    assert returncode == 3
    assert "still there 0.3 s after they were told to end: killing 0\n" in err


def pid_is_rank(pid: int, rank: int) -> bool:
    try:
        return stat_rank(pid) == rank
    except (KeyError, OSError):
        return False


def test_timeout_ends_all_ranks_with_124():
    with Job(2, WAIT, "--timeout", "0.4") as job:
        returncode, _, err = job.end()
        assert job.processes() == []
    assert returncode == 124
    assert err == "qccl run: timeout of 0.4 s: ending the ranks that still run: 0 1\n"


def test_timeout_kills_ranks_that_ignore_sigterm():
    # A signal that is ignored at the start stays ignored, so the ranks never get SIGTERM, however slowly they start.
    deaf = ("sh", "-c", 'trap "" TERM; exec "$@"', "sh")
    with Job(2, WAIT_ON, "--timeout", "0.4", "--grace", "0.1", wrapper=deaf) as job:
        returncode, _, err = job.end()
        assert job.processes() == []
    assert returncode == 124
    assert "still there 0.1 s after they were told to end: killing 0 1" in err


@pytest.mark.parametrize(
    "command",
    [("run", "-n", 1, "--timeout"), ("run", "-n", 1, "--grace"), ("ps", "--wait"), ("doctor", "--timeout")],
)
def test_a_time_that_is_no_number_is_refused(command):
    result = run(*command, "nan")
    assert result.returncode == 2 and "nan is no number" in result.stderr, result


@pytest.mark.parametrize("program", ["no-such-program-anywhere", "/no/such/file"])
def test_a_program_that_is_not_there_is_127(program):
    result = run("run", "-n", 2, "--", program)
    assert result.returncode == 127
    assert result.stderr.startswith(f"qccl run: can't start '{program}': there is no such ")


def test_a_file_that_is_no_program_is_126(tmp_path):
    file = tmp_path / "data"
    file.write_text("not a program")
    result = run("run", "-n", 2, "--", file)
    assert result.returncode == 126
    assert "Permission denied" in result.stderr


# ---- signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_signals_reach_every_rank(name):
    code = f"signal.signal(signal.{name}, lambda *_: (print('got', rank), os._exit(0)));"
    with Job(3, code + SAY_READY + WAIT_ON) as job:
        assert job.read_lines(3) == ready(3)
        job.process.send_signal(signal.Signals[name])
        returncode, out, _ = job.end()
        assert job.processes() == []
    assert sorted(out.splitlines()) == [f"got {rank}" for rank in range(3)]
    assert returncode == 0


def test_sigterm_that_nobody_handles_is_143():
    with Job(2, SAY_READY + WAIT) as job:
        assert job.read_lines(2) == ready(2)
        job.process.terminate()
        returncode, _, err = job.end()
    assert returncode == 128 + signal.SIGTERM
    assert err.startswith("qccl run: got SIGTERM: passed it on; SIGKILL follows in 5 s\n")


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace():
    with Job(2, IGNORE_TERM + SAY_READY + WAIT_ON, "--grace", "0.2") as job:
        assert job.read_lines(2) == ready(2)
        job.process.terminate()
        assert job.end()[0] == 128 + signal.SIGKILL
        assert job.processes() == []


def test_a_second_sigint_kills_at_once():
    code = "signal.signal(signal.SIGINT, lambda *_: print('heard'));"
    with Job(1, code + SAY_READY + WAIT_ON, "--grace", "3600") as job:
        assert job.read_lines(1) == ready(1)
        job.process.send_signal(signal.SIGINT)
        assert job.read_lines(1) == ["heard"]
        job.process.send_signal(signal.SIGINT)
        returncode, _, err = job.end()
    assert returncode == 128 + signal.SIGKILL
    assert "got SIGINT as well: killing all ranks" in err


def test_a_signal_that_the_launcher_was_told_to_ignore_stays_ignored():
    code = SAY_READY + "sys.stdin.readline() if rank == '0' else None"
    with Job(2, code, wrapper=("nohup",), stdin=subprocess.PIPE) as job:
        assert job.read_lines(2) == ready(2)
        job.process.send_signal(signal.SIGHUP)
        returncode, _, err = job.end("go\n")
    assert returncode == 0 and "SIGHUP" not in err


def test_stop_and_continue_reach_the_ranks():
    with Job(2, SAY_READY + WAIT) as job:
        assert job.read_lines(2) == ready(2)
        (watcher,) = job.children(job.pid)
        ranks = job.children(watcher)
        assert len(ranks) == 2
        job.process.send_signal(signal.SIGTSTP)
        wait_until(lambda: {state_of(pid) for pid in (*ranks, job.pid)} == {"T"})
        job.process.send_signal(signal.SIGCONT)
        wait_until(lambda: {state_of(pid) for pid in (*ranks, job.pid)} == {"S"})
        job.process.terminate()
        assert job.end()[0] == 128 + signal.SIGTERM


# ---- nothing stays behind


@pytest.mark.parametrize("own_session", [False, True])
def test_what_ranks_left_behind_is_ended_with_the_job(own_session):
    code = SAY_READY + GRANDCHILD.replace("OWN_SESSION", str(own_session))
    with Job(2, code, "--grace", "0.2") as job:
        lines = job.read_lines(4)
        assert sorted(lines) == ["grandchild"] * 2 + ready(2)
        assert job.end()[0] == 0
        assert job.processes() == []


@pytest.mark.parametrize("own_session", [False, True])
def test_a_failed_ranks_children_are_ended_with_the_job(own_session):
    code = SAY_READY + GRANDCHILD.replace("OWN_SESSION", str(own_session))
    with Job(2, code + "sys.exit(9) if rank == '1' else signal.pause()", "--grace", "0.2") as job:
        assert job.end()[0] == 9
        assert job.processes() == []


@pytest.mark.parametrize("own_session", [False, True])
@pytest.mark.parametrize("victim", ["launcher", "its watching process"])
def test_a_launcher_killed_with_sigkill_leaves_nothing_behind(victim, own_session):
    code = IGNORE_TERM + SAY_READY + GRANDCHILD.replace("OWN_SESSION", str(own_session))
    with Job(3, code + WAIT_ON) as job:
        assert job.read_lines(6) == ["grandchild"] * 3 + ready(3)
        (watcher,) = job.children(job.pid)
        os.kill(job.pid if victim == "launcher" else watcher, signal.SIGKILL)
        returncode, _, _ = job.end()  # end of file: every process that held the pipes has ended
        assert returncode == (-signal.SIGKILL if victim == "launcher" else 128 + signal.SIGKILL)
        assert job.processes() == []


def test_ranks_die_even_if_both_processes_of_the_launcher_are_killed_at_once():
    with Job(3, IGNORE_TERM + SAY_READY + WAIT_ON) as job:
        assert job.read_lines(3) == ready(3)
        (watcher,) = job.children(job.pid)
        for pid in (watcher, job.pid):  # so that neither can act on the other's death
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: {state_of(watcher), state_of(job.pid)} == {"T"})
        os.kill(watcher, signal.SIGKILL)
        os.kill(job.pid, signal.SIGKILL)
        assert job.end()[0] == -signal.SIGKILL
        wait_until(lambda: job.processes() == [])


# ---- the command line


def test_what_is_behind_two_dashes_is_the_programs():
    assert run("run", "-n", 1, "--", "echo", "-n", "x", "--timeout", "--").stdout == "x --timeout --"


def test_a_program_may_stand_without_two_dashes():
    assert run("run", "-n", 1, "echo", "-n", "x", "--help", "--", "y").stdout == "x --help -- y"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--", "true"], "--ranks"),
        (["-n", "0", "--", "true"], "--ranks"),
        (["-n", "2"], "no program"),
        (["-n", "2", "--"], "no program"),
        (["-n", "2", "--frobnicate", "--", "true"], "--frobnicate"),
        (["-n", "2", "--transport", "pigeon", "--", "true"], "pigeon"),
        (["-n", "2", "--compression", "zip", "--", "true"], "zip"),
        (["-n", "2", "--timeout", "soon", "--", "true"], "soon"),
    ],
)
def test_wrong_flags_are_2_and_say_what_is_wrong(arguments, words):
    result = run("run", *arguments)
    assert result.returncode == 2
    assert words in result.stderr and result.stdout == ""


@pytest.mark.parametrize("flag", ["--host", "--hosts", "--hostfile", "--master-addr", "--ssh"])
@pytest.mark.parametrize("ranks", [(), ("-n", 2)])
def test_flags_for_several_hosts_are_2_and_name_the_launchers_that_have_them(flag, ranks):
    message = f"qccl run: {flag}: qccl run starts ranks on this host only: for several hosts use torchrun, mpirun"
    for given in ([flag, "node1"], [f"{flag}=node1"], [flag]):
        result = run("run", *given, *ranks, "--", "true")
        assert result.returncode == 2 and result.stderr.startswith(message), result.stderr
    assert flag not in run("run", "--help").stdout.split()
    assert run("run", "-n", 1, "echo", flag, "node1").stdout == f"{flag} node1\n"


def test_an_unknown_command_is_2_and_names_the_others():
    result = run("fly")
    assert result.returncode == 2 and "'fly'" in result.stderr and "run, ps" in result.stderr
    assert run().returncode == 2


def test_many_jobs_at_once_have_ports_of_their_own():
    jobs = [Job(1, "print(os.environ['MASTER_PORT']); input()", stdin=subprocess.PIPE) for _ in range(8)]
    try:
        ports = {job.process.stdout.readline() for job in jobs}
        assert len(ports) == 8
    finally:
        for job in jobs:
            job.end("\n")
    assert [job.process.returncode for job in jobs] == [0] * 8
