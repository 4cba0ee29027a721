"""Keys, as users meet them: `qccl key`, `qccl run`, the variables, and what `ps` and `qccl doctor` show."""

import os
import re
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from program import PROGRAM

SUM = [str(PROGRAM), "perf", "all_reduce", "-b", "1M", "-e", "1M", "-n", "2", "-w", "1"]
KEY_VARIABLES = ("QCCL_KEY", "QCCL_KEY_FILE", "QCCL_KEY_FD", "QCCL_ENCRYPTION")


def environment(**added: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in KEY_VARIABLES}
    return {**kept, **added}


def run(*arguments: str, **added: str) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(**added), check=False)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    assert run("key", str(path)).returncode == 0
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def start_ranks(*variables: dict[str, str]) -> list[subprocess.Popen[str]]:
    """Ranks of one job without a launcher, each with its own variables."""
    job = {"WORLD_SIZE": str(len(variables)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        subprocess.Popen(
            SUM,
            env=environment(**job, RANK=str(rank), QCCL_INIT_TIMEOUT="60", QCCL_LOG="warning", **own),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, own in enumerate(variables)
    ]


def test_key_is_new_random_and_for_its_owner_only(key: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert run("key", str(other)).returncode == 0
    assert re.fullmatch(r"[0-9a-f]{64}\n", key.read_text())
    assert key.read_text() != other.read_text()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    again = run("key", str(key))
    assert again.returncode == 1
    assert f"can't make {key}: File exists" in again.stderr


@pytest.mark.parametrize("encryption", ["on", "off"])
def test_ranks_with_one_key_work(key: Path, encryption: str) -> None:
    ran = run("run", "-n", "3", "--", *SUM, QCCL_KEY_FILE=str(key), QCCL_TRANSPORT="tcp", QCCL_ENCRYPTION=encryption)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_rank_with_another_key_is_told_so_at_once(key: Path) -> None:
    right, wrong = {"QCCL_KEY_FILE": str(key)}, {"QCCL_KEY": "sixteen other bytes"}
    ranks = start_ranks(right, right, wrong)
    try:
        output = ranks[2].communicate(timeout=30)[0]
        assert "refused this rank's key: give all ranks the same key" in output
        assert ranks[2].returncode != 0
        assert "sixteen" not in output
    finally:
        for rank in ranks:
            rank.kill()
    output = ranks[0].communicate()[0]
    assert re.search(r"warning: the store refused a connection from 127.0.0.1: it has another key", output), output


@pytest.mark.parametrize("variable", ["QCCL_KEY", "QCCL_KEY_FILE"])
def test_an_empty_variable_does_not_start_a_job_without_a_key(variable: str) -> None:
    ran = run("run", "-n", "2", "--", *SUM, **{variable: ""})
    assert ran.returncode != 0
    assert f"{variable} is set, but empty: give it its value, or unset it for a job without a key" in ran.stderr


def test_encryption_that_is_asked_for_needs_a_key(key: Path) -> None:
    ranks = start_ranks({"QCCL_ENCRYPTION": "on"}, {"QCCL_ENCRYPTION": "on"})
    for rank in ranks:
        assert "QCCL_ENCRYPTION is on, but this rank has no key to encrypt with" in rank.communicate(timeout=30)[0]
        assert rank.returncode != 0
    ranks = start_ranks(*2 * [{"QCCL_ENCRYPTION": "on", "QCCL_KEY_FILE": str(key)}])
    for rank in ranks:
        rank.communicate(timeout=60)
        assert rank.returncode == 0


def test_run_makes_a_key_that_neither_arguments_nor_environment_show() -> None:
    show = "cat /proc/self/environ /proc/self/cmdline /proc/$PPID/cmdline | tr '\\0' '\\n'; readlink /proc/self/fd/*"
    ran = run("run", "-n", "1", "--", "sh", "-c", show)
    assert re.search(r"^QCCL_KEY_FD=\d+@\d+$", ran.stdout, re.M)
    assert "/memfd:qccl-key" in ran.stdout
    assert not re.search(r"[0-9a-f]{64}", ran.stdout)


def test_run_takes_no_key_that_ps_would_show(key: Path) -> None:
    ran = run("run", "-n", "1", "--env", "QCCL_KEY=sixteen bytes, or more", "--", "true")
    assert ran.returncode == 2
    assert "--env: QCCL_KEY=VALUE would show the key to every user in ps: set QCCL_KEY_FILE" in ran.stderr
    assert "sixteen" not in ran.stderr
    assert run("run", "-n", "2", "--env", f"QCCL_KEY_FILE={key}", "--", *SUM).returncode == 0


def test_a_program_in_between_may_close_all_descriptors() -> None:
    program = f"import subprocess, sys; sys.exit(subprocess.run({SUM!r}, close_fds=True).returncode)"
    ran = run("run", "-n", "2", "--", "python3", "-c", program, QCCL_TRANSPORT="tcp")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_doctor_tells_the_source_of_the_key_and_never_the_key(key: Path) -> None:
    secret = key.read_text().strip()
    told = run("doctor", QCCL_KEY_FILE=str(key))
    assert re.search(rf"^key +from QCCL_KEY_FILE \({key}\); what ranks send over TCP is encrypted$", told.stdout, re.M)
    assert secret not in told.stdout + told.stderr
    key.chmod(0o644)
    assert f"key: {key} can be read by other users" in run("doctor", QCCL_KEY_FILE=str(key)).stdout
    told = run("doctor", QCCL_KEY="short")
    assert told.returncode == 1
    assert "QCCL_KEY has a key of 5 bytes: it must have 16 to 4096" in told.stdout
    assert "short" not in told.stdout.replace("qccl-short", "")
