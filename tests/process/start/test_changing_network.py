"""Names, addresses and routes that come or change after ranks have begun to look for them. A network namespace is the
host; each rank has its own /etc/hosts, which the test changes once the rank says that it tries again."""

import contextlib
import subprocess
from pathlib import Path

import pytest
from job import free_port
from launchers import cluster
from program import DEADLINE, PROGRAM, environment

WITH_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'
ONCE = (PROGRAM, "perf", "all_reduce", "-b", 4, "-e", 4, "-w", 0, "-n", 1, "-c", 0)
LOCALHOST = "127.0.0.1 localhost\n"


class Rank:
    """A rank of two on a host, with its own hosts file."""

    def __init__(self, host: tuple, number: int, master: tuple[str, int], hosts: Path) -> None:
        address, port = master
        self.process = subprocess.Popen(
            [*map(str, (*host, "unshare", "-m", "sh", "-c", WITH_HOSTS, hosts, *ONCE))],
            env=environment(
                RANK=str(number), WORLD_SIZE="2", MASTER_ADDR=address, MASTER_PORT=str(port), QCCL_LOG="info"
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tries_again(self) -> str:
        """Waits until the rank has looked and says why it looks again."""
        for line in self.process.stderr:
            if "tries again" in line:
                return line
        raise AssertionError("the rank ended without another try")

    def ends_well(self) -> None:
        errors = self.process.communicate(timeout=DEADLINE)[1]
        assert self.process.returncode == 0, errors


@contextlib.contextmanager
def started(*arguments):
    rank = Rank(*arguments)
    try:
        yield rank
    finally:
        rank.process.kill()
        rank.process.wait()


def hosts_file(folder: Path, text: str) -> Path:
    file = folder / "hosts"
    file.write_text(text)
    return file


def run_on(host: tuple, *command: object) -> None:
    subprocess.run([*map(str, (*host, *command))], check=True, capture_output=True)


@pytest.mark.parametrize("first", ["", "10.77.0.99 late.test\n"], ids=["no address", "another address"])
def test_a_name_gets_its_address_after_the_first_look(first, tmp_path):
    port = free_port()
    hosts = hosts_file(tmp_path, LOCALHOST + first)
    own = tmp_path / "own"
    own.write_text(LOCALHOST)
    with cluster(2, tmp_path) as (on_host, _), started(on_host(2), 1, ("late.test", port), hosts) as rank_1:
        reason = rank_1.tries_again()
        assert "late.test" in reason
        hosts.write_text(LOCALHOST + "10.77.0.1 late.test\n")
        with started(on_host(1), 0, ("10.77.0.1", port), own) as rank_0:
            rank_0.ends_well()
            rank_1.ends_well()


def test_rank_0s_own_name_gets_its_address_after_the_first_look(tmp_path):
    port = free_port()
    hosts = hosts_file(tmp_path, LOCALHOST)
    with cluster(1, tmp_path) as (on_host, _), started(on_host(1), 0, ("late.test", port), hosts) as rank_0:
        assert "late.test" in rank_0.tries_again()
        hosts.write_text(LOCALHOST + "10.77.0.1 late.test\n")
        with started(on_host(1), 1, ("late.test", port), hosts) as rank_1:
            rank_0.ends_well()
            rank_1.ends_well()


def test_the_route_to_rank_0_comes_after_the_first_look(tmp_path):
    port = free_port()
    hosts = hosts_file(tmp_path, LOCALHOST)
    with cluster(2, tmp_path) as (on_host, _):
        run_on(on_host(1), "ip", "address", "add", "10.99.0.1/32", "dev", "lo")
        with started(on_host(2), 1, ("10.99.0.1", port), hosts) as rank_1:
            assert "unreachable" in rank_1.tries_again()
            run_on(on_host(2), "ip", "route", "add", "10.99.0.1", "via", "10.77.0.1")
            with started(on_host(1), 0, ("10.99.0.1", port), hosts) as rank_0:
                rank_0.ends_well()
                rank_1.ends_well()


@pytest.mark.parametrize("first", [0, 1])
def test_localhost_begins_with_an_address_that_the_host_does_not_have(first, tmp_path):
    """As in a container whose hosts file has ::1 while IPv6 is off."""
    port = free_port()
    hosts = hosts_file(tmp_path, "::1 localhost\n" + LOCALHOST)
    with cluster(1, tmp_path) as (on_host, _):
        run_on(on_host(1), "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
        with started(on_host(1), first, ("localhost", port), hosts) as earlier:
            if first == 1:
                assert "127.0.0.1 Connection refused" in earlier.tries_again()
            with started(on_host(1), 1 - first, ("localhost", port), hosts) as later:
                earlier.ends_well()
                later.ends_well()


def test_an_address_in_brackets(tmp_path):
    port = free_port()
    hosts = hosts_file(tmp_path, LOCALHOST)
    with cluster(1, tmp_path) as (on_host, _):
        run_on(on_host(1), "ip", "address", "add", "fd77::1/64", "dev", "lo", "nodad")
        with (
            started(on_host(1), 0, ("[fd77::1]", port), hosts) as rank_0,
            started(on_host(1), 1, ("[fd77::1]", port), hosts) as rank_1,
        ):
            rank_0.ends_well()
            rank_1.ends_well()
