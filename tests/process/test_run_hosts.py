"""`qccl run` on several hosts: what ranks get there, how a job ends, and that nothing of it stays behind anywhere."""

import os
import signal
import subprocess
import sys
import uuid

import pytest
from launchers import cluster, execute, reached, said
from program import MARK, PROGRAM, Job, run, state_of
from ssh import Daemon, script, simple
from test_run import IGNORE_TERM, SAY_READY, WAIT_ON, ready, wait_until

HOSTS = ("--hosts", "alpha:2,beta:1")
PRINT = "print(*(os.environ[n] for n in sys.argv[1:]))"


@pytest.fixture
def ssh(tmp_path):
    return ("--ssh", str(simple(tmp_path)))


@pytest.fixture
def job(tmp_path):
    """Starts a job whose hosts are reached as by sshd; all of its processes are known by their environment."""
    mark = uuid.uuid4().hex
    daemon = Daemon(tmp_path, **{MARK: mark})
    jobs = []

    def start(code: str, *flags: str, hosts=HOSTS, ranks=3, **variables):
        jobs.append(Job(ranks, code, *hosts, "--ssh", str(daemon.client), *flags, **variables, **{MARK: mark}))
        return jobs[-1]

    yield start
    for each in jobs:
        each.__exit__()
    daemon.close()



def clients_of(job: Job) -> list[int]:
    """The connections, in the order of the hosts."""
    (watcher,) = [pid for pid in job.children(job.pid)]
    return sorted(job.children(watcher))


# ---- what ranks are given


def test_ranks_get_their_place_in_the_job(ssh):
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR OMP_NUM_THREADS".split()
    result = run("run", *HOSTS, *ssh, "--", sys.executable, "-c", "import os, sys;" + PRINT, *names)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["0 3 0 2 alpha 1", "1 3 1 2 alpha 1", "2 3 0 1 alpha 1"]
    assert result.stderr == ""


def test_all_ranks_have_one_port_and_the_launchers_folder_and_settings(ssh, tmp_path):
    flags = ["--env", "GREETING=good day", "--env", "HOME", "--compression", "minmax:bits=4"]
    flags += ["--master-addr", "10.9.8.7"]
    shown = 'echo "$PWD|$MASTER_PORT|$MASTER_ADDR|$GREETING|$HOME|$QCCL_COMPRESSION|$QCCL_TIMEOUT|$UNRELATED"'
    result = subprocess.run(
        [PROGRAM, "run", *HOSTS, *ssh, *flags, "--", "sh", "-c", shown],
        cwd=tmp_path, env={**os.environ, "HOME": "/h", "QCCL_TIMEOUT": "7", "UNRELATED": "u"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 3 and len(set(lines)) == 1
    folder, port, *rest = lines[0].split("|")
    assert folder == str(tmp_path) and 1024 <= int(port) <= 65535
    assert rest == ["10.9.8.7", "good day", "/h", "minmax:bits=4", "7", ""]


def test_a_hostfile_names_hosts_in_every_usual_form(ssh, tmp_path):
    file = tmp_path / "hosts.txt"
    file.write_text("# ours\nalpha slots=1 max_slots=2\nbeta:2\ngamma slots=4\n")
    shown = ("--", "sh", "-c", "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE")
    everything = run("run", "--hostfile", file, *ssh, *shown)
    assert sorted(everything.stdout.splitlines()) == [
        "0 0 1", "1 0 2", "2 1 2", "3 0 4", "4 1 4", "5 2 4", "6 3 4"]  # fmt: skip
    assert len(run("run", "--hostfile", file, "-n", 8, *ssh, *shown).stdout.splitlines()) == 8
    chosen = run("run", "--hostfile", file, "--hosts", "gamma:1,alpha", *ssh, *shown)
    assert sorted(chosen.stdout.splitlines()) == ["0 0 1", "1 0 1"]


def test_this_host_needs_no_ssh():
    result = run("run", "--hosts", "localhost:2", "--ssh", "false", "--", "printenv", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    assert result.stdout.split() == ["2", "127.0.0.1"] * 2, result.stderr
    mixed = run("run", "--hosts", f"{os.uname().nodename}:2,localhost:1", "--ssh", "false", "--", "printenv", "RANK")
    assert sorted(mixed.stdout.split()) == ["0", "1", "2"], mixed.stderr


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


# ---- input and output


def test_output_arrives_whole_with_tags_and_in_files(ssh, tmp_path):
    code = """
import os, sys
rank = os.environ["RANK"]
print("out", rank)
print("err", rank, file=sys.stderr)
print("x" * 200000)
"""
    logs = tmp_path / "a" / "logs"
    result = run("run", *HOSTS, *ssh, "--tag-output", "--log-dir", logs, "--", sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr
    expected = sorted(line for r in range(3) for line in (f"[{r}]: out {r}", f"[{r}]: " + "x" * 200000))
    assert sorted(result.stdout.splitlines()) == expected
    assert sorted(result.stderr.splitlines()) == [f"[{r}]: err {r}" for r in range(3)]
    for rank in range(3):
        text = (logs / f"rank{rank}.log").read_text()
        assert sorted(text.splitlines()) == sorted([f"err {rank}", f"out {rank}", "x" * 200000])
    plain = run("run", *HOSTS, *ssh, "--", "printf", "a\\nb")
    assert sorted(plain.stdout.replace("\n", "")) == ["a"] * 3 + ["b"] * 3


def test_log_files_of_a_local_job(tmp_path):
    result = run("run", "-n", 2, "--log-dir", tmp_path, "--", "sh", "-c", "echo $RANK; echo e$RANK >&2")
    assert sorted(result.stdout.split()) == ["0", "1"] and sorted(result.stderr.split()) == ["e0", "e1"]
    assert sorted((tmp_path / "rank1.log").read_text().split()) == ["1", "e1"]
    refused = run("run", "-n", 1, "--log-dir", tmp_path / "rank1.log", "--", "true")
    assert refused.returncode == 1 and "for --log-dir" in refused.stderr


def test_rank_0_reads_the_launchers_input_whatever_its_size(job):
    text = "".join(f"{line}\n" for line in range(300_000))  # several times the window
    code = """
data = sys.stdin.read()
print(rank, len(data), data == "".join(f"{line}\\n" for line in range(300_000)))
"""
    returncode, out, err = job(code, stdin=subprocess.PIPE).end(text)
    assert returncode == 0, err
    assert sorted(out.splitlines()) == [f"0 {len(text)} True", "1 0 False", "2 0 False"]


def test_a_rank_0_that_does_not_read_is_no_obstacle(job):
    returncode, out, _ = job("print('done', rank)", stdin=subprocess.PIPE).end("x" * 3_000_000)
    assert returncode == 0 and sorted(out.splitlines()) == [f"done {rank}" for rank in range(3)]


def test_a_reader_that_leaves_ends_the_ranks_as_sigpipe_would(ssh):
    command = f"{PROGRAM} run {' '.join([*HOSTS, *ssh])} -- yes | head -n 1; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert result.stdout == "y\n" and result.returncode == 128 + signal.SIGPIPE, result.stderr


def test_what_a_login_shell_prints_is_skipped(tmp_path):
    noisy = script(tmp_path / "ssh", '#!/bin/sh\nshift\necho "Welcome! qccl run agent"; exec sh -c "$*"\n')
    result = run("run", *HOSTS, "--ssh", noisy, "--", "printenv", "RANK")
    assert result.returncode == 0 and sorted(result.stdout.split()) == ["0", "1", "2"]


# ---- how a job ends


@pytest.mark.parametrize(("failing", "host"), [(0, "alpha"), (2, "beta")])
def test_one_failure_ends_ranks_on_all_hosts_and_its_code_is_the_jobs(job, failing, host):
    code = f"signal.signal(signal.SIGUSR1, lambda *_: os._exit(7 if rank == '{failing}' else 3));"
    running = job(code + SAY_READY + WAIT_ON)
    assert running.read_lines(3) == ready(3)
    victim = running.ranks()[failing]
    os.kill(victim, signal.SIGUSR1)
    returncode, _, err = running.end()
    others = " ".join(str(rank) for rank in range(3) if rank != failing)
    assert returncode == 7
    what = f"rank {failing} (pid {victim} on {host}) exited with code 7; ending the other ranks: {others}"
    assert err == f"qccl run: {what}\n"
    wait_until(lambda: running.processes() == [])


def test_a_rank_killed_by_a_signal_is_128_plus_the_signal(ssh):
    result = run("run", *HOSTS, *ssh, "--", "sh", "-c", '[ "$RANK" = 2 ] && kill -SEGV $$; sleep 60')
    assert result.returncode == 128 + signal.SIGSEGV
    assert "on beta) was killed by signal 11 (SIGSEGV" in result.stderr


def test_timeout_kills_ranks_that_ignore_sigterm(job):
    running = job(IGNORE_TERM + SAY_READY + WAIT_ON, "--timeout", "5", "--grace", "0.1")
    returncode, _, err = running.end()
    assert returncode == 124
    assert "timeout of 5 s: ending the ranks that still run: 0 1 2" in err
    wait_until(lambda: running.processes() == [])


@pytest.mark.parametrize(("program", "code"), [("no-such-program-anywhere", 127), ("/etc/passwd", 126)])
def test_a_program_that_is_not_there(ssh, program, code):
    result = run("run", *HOSTS, *ssh, "--", program)
    assert result.returncode == code
    assert f"qccl run: host alpha: can't start '{program}'" in result.stderr


def test_a_folder_that_is_only_here(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    ssh = script(tmp_path / "ssh", f'#!/bin/sh\nshift\ncd /; rmdir {gone} 2>/dev/null; exec sh -c "$*"\n')
    result = subprocess.run(
        [PROGRAM, "run", *HOSTS, "--ssh", ssh, "--", "true"], cwd=gone, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 1
    assert f"host alpha: can't run in the folder '{gone}': No such file or directory" in result.stderr


# ---- signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_signals_reach_every_rank(job, name):
    code = f"signal.signal(signal.{name}, lambda *_: (print('got', rank), os._exit(0)));"
    running = job(code + SAY_READY + WAIT_ON)
    assert running.read_lines(3) == ready(3)
    running.process.send_signal(signal.Signals[name])
    returncode, out, _ = running.end()
    assert sorted(out.splitlines()) == [f"got {rank}" for rank in range(3)]
    assert returncode == 0


def test_a_second_sigint_kills_at_once(job):
    code = "signal.signal(signal.SIGINT, lambda *_: print('heard'));"
    running = job(code + SAY_READY + WAIT_ON, "--grace", "3600")
    assert running.read_lines(3) == ready(3)
    running.process.send_signal(signal.SIGINT)
    assert running.read_lines(3) == ["heard"] * 3
    running.process.send_signal(signal.SIGINT)
    assert running.end()[0] == 128 + signal.SIGKILL
    wait_until(lambda: running.processes() == [])


def test_sigterm_before_all_hosts_have_answered(tmp_path):
    never = "[ $1 = beta ] && echo waiting >&2 && exec sleep 600"
    slow = script(tmp_path / "ssh", f'#!/bin/sh\n{never}\nshift; exec sh -c "$*"\n')
    running = Job(3, "print('never')", *HOSTS, "--ssh", str(slow), "--grace", "0.2")
    with running:
        assert running.process.stderr.readline() == "waiting\n"
        running.process.terminate()
        returncode, out, _ = running.end()
        assert (returncode, out) == (128 + signal.SIGTERM, "")
        assert running.processes() == []


# ---- nothing stays behind


@pytest.mark.parametrize("victims", ["launcher", "its watching process", "both"])
def test_a_launcher_killed_with_sigkill_leaves_nothing_behind_anywhere(job, victims):
    running = job(IGNORE_TERM + SAY_READY + WAIT_ON)
    assert running.read_lines(3) == ready(3)
    (watcher,) = running.children(running.pid)
    killed = {"launcher": [running.pid], "its watching process": [watcher], "both": [watcher, running.pid]}[victims]
    for pid in killed:
        os.kill(pid, signal.SIGSTOP)  # so that neither can act on the other's death
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: running.processes() == [])


def test_a_connection_that_ends_takes_its_ranks_and_the_job_with_it(job, tmp_path):
    file = tmp_path / "hosts"
    file.write_text("alpha slots=2\n\nbeta\n")
    running = job(IGNORE_TERM + SAY_READY + WAIT_ON, "--grace", "0.2", hosts=("--hostfile", str(file)))
    assert running.read_lines(3) == ready(3)
    os.kill(clients_of(running)[1], signal.SIGKILL)
    returncode, _, err = running.end()
    assert returncode == 255
    assert f"lost host beta ({file}:3): " in err and "was killed by signal 9 (SIGKILL)" in err
    assert "ending the other ranks: 0 1" in err
    wait_until(lambda: running.processes() == [])


def test_a_host_that_falls_silent_is_lost_and_kills_its_own_ranks(job):
    running = job(IGNORE_TERM + SAY_READY + WAIT_ON, "--host-timeout", "5", "--grace", "0.2")
    assert running.read_lines(3) == ready(3)
    rank = running.ranks()[2]
    client = clients_of(running)[1]
    os.kill(client, signal.SIGSTOP)
    wait_until(lambda: state_of(rank) == "gone")  # though the connection is still there
    returncode, _, err = running.end()
    assert returncode == 255 and "nothing was heard of host beta (--hosts) for 5 s" in err
    wait_until(lambda: running.processes() == [])


def test_an_agent_that_is_killed_takes_its_ranks_with_it(job):
    running = job(IGNORE_TERM + SAY_READY + WAIT_ON, "--grace", "0.2")
    assert running.read_lines(3) == ready(3)
    ranks = running.ranks()
    with open(f"/proc/{ranks[2]}/stat") as file:
        agent = int(file.read().rpartition(")")[2].split()[1])
    os.kill(agent, signal.SIGKILL)
    assert running.end()[0] == 255
    wait_until(lambda: running.processes() == [])


def test_what_ranks_left_behind_is_ended_with_the_job(job):
    code = SAY_READY + "subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=2, env=os.environ)"
    running = job(code, "--grace", "0.2")
    assert running.end()[0] == 0
    wait_until(lambda: running.processes() == [])


# ---- hosts that can't be had


def test_a_host_that_cannot_be_reached_is_named_with_its_line(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("alpha\nnod3 slots=2\n")
    ssh = script(tmp_path / "ssh", '#!/bin/sh\n[ $1 = alpha ] || exit 255; shift; exec sh -c "$*"\n')
    result = run("run", "--hostfile", file, "--ssh", ssh, "--", "echo", "started")
    assert (result.returncode, result.stdout) == (255, "")
    assert result.stderr.startswith(f"qccl run: can't start ranks on host nod3 ({file}:2): {ssh} exited with code 255")
    assert len(result.stderr.splitlines()) == 1


def test_ssh_itself_that_is_not_there():
    result = run("run", *HOSTS, "--ssh", "no-such-ssh -p 22", "--", "true")
    assert result.returncode == 127 and "can't start 'no-such-ssh'" in result.stderr


def test_another_version_of_qccl_is_named(tmp_path):
    other = script(tmp_path / "ssh", "#!/bin/sh\necho 'qccl run agent 0.0.0'; exec sleep 600\n")
    result = run("run", *HOSTS, "--ssh", other, "--", "true")
    assert result.returncode == 1 and "has qccl 0.0.0, but this one" in result.stderr


def test_what_speaks_another_language_is_no_agent(tmp_path):
    other = script(tmp_path / "ssh", "#!/bin/sh\nexec yes\n")
    result = run("run", *HOSTS, "--ssh", other, "--host-timeout", "1", "--", "true")
    assert result.returncode == 255 and "there was no answer from host alpha (--hosts) for 1 s" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alpha slots=2\nbeta slots=x\n", ":2: 'slots=x' has no number of slots"),
        ("alpha\n\nalpha slots=2\n", ":3: host 'alpha' is there twice, first at "),
        ("# none\n", "there is no host in it"),
        ("localhost\nbeta\n", ":1: other hosts can't reach rank 0 at 'localhost'"),
        ("alpha slots=2\n", "3 ranks, but there are 2 slots"),
    ],
)
def test_a_wrong_hostfile_is_one_error(tmp_path, text, words):
    file = tmp_path / "hosts"
    file.write_text(text)
    ranks = ("-n", 3) if "ranks" in words else ()
    result = run("run", "--hostfile", file, *ranks, "--ssh", "false", "--", "true")
    assert result.returncode == 2
    assert words in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr


def test_unknown_hosts_and_files_are_one_error(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("alpha slots=2\n")
    unknown = run("run", "--hostfile", file, "--hosts", "gamma", "--", "true")
    assert unknown.returncode == 2 and unknown.stderr == f"qccl run: --hosts: host 'gamma' is not in {file}\n"
    missing = run("run", "--hostfile", tmp_path / "none", "--", "true")
    assert missing.returncode == 2 and missing.stderr == f"qccl run: --hostfile: can't read '{tmp_path}/none'\n"


# ---- hosts with networks of their own


def test_ranks_on_several_hosts_reach_each_other(tmp_path):
    with cluster(2, tmp_path) as (on_host, agent):
        file = tmp_path / "hosts"
        file.write_text("10.77.0.1 slots=2\n10.77.0.2 slots=1\n")
        done = execute(*on_host(1), PROGRAM, "run", "--hostfile", file, "--ssh", agent, "--", PROGRAM, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(reached(done.stdout)) == 3
    assert "tcp to rank 2" in done.stdout
    assert said(done.stdout, "rendezvous").startswith("10.77.0.1:")
    assert "local rank 0 of 2" in said(done.stdout, "rank")
