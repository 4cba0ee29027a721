"""What users fear: dead, stopped, missing and confused ranks, strangers on the port. Real processes."""

import os
import pathlib
import re
import signal
import socket
import time

import pytest
from job import free_port, job

TRANSPORTS = ["shm", "tcp"]


def shared_memory_files():
    return {p.name for p in pathlib.Path("/dev/shm").iterdir()}


def parse_error(line):
    kind, peer, sequence, message = re.match(r"ERROR (\S+) (-?\d+) (\d+) (.*)", line).groups()
    return kind, int(peer), int(sequence), message


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("extra", [[], ["--fork-child"]], ids=["alone", "with_forked_child"])
def test_killed_rank_fails_every_other_rank_within_a_second(transport, extra):
    before = shared_memory_files()
    with job(4, ["--loop", *extra], transport) as ranks:
        for rank in ranks:
            rank.expect("READY")
        killed = time.monotonic()
        ranks[2].send_signal(signal.SIGKILL)
        for rank in (ranks[0], ranks[1], ranks[3]):
            moment, line = rank.expect("ERROR", seconds=10)
            kind, peer, sequence, message = parse_error(line)
            assert moment - killed < 1.0, line
            assert (kind, peer) == ("peer_lost", 2), line
            assert "rank 2" in message and "all_reduce" in message, line
    assert shared_memory_files() <= before


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_stopped_rank_fails_at_the_deadline_that_was_set(transport):
    with job(3, ["--loop", "--timeout-ms", "1500"], transport) as ranks:
        for rank in ranks:
            rank.expect("READY")
        stopped = time.monotonic()
        ranks[1].send_signal(signal.SIGSTOP)
        for rank in (ranks[0], ranks[2]):
            moment, line = rank.expect("ERROR", seconds=10)
            kind, peer, sequence, message = parse_error(line)
            assert 1.3 < moment - stopped < 3.0, line
            assert (kind, peer) == ("deadline_exceeded", 1), line
            assert "rank 1" in message and "bytes" in message, line
        ranks[1].send_signal(signal.SIGCONT)


CALLS = {
    "count": ("all_reduce:1000:float32", "all_reduce:1001:float32"),
    "large_count": ("all_reduce:1000000:float32", "all_reduce:900000:float32"),
    "small_against_large": ("all_reduce:4:float32", "all_reduce:900000:float32"),
    "type": ("all_reduce:1000:float32", "all_reduce:1000:float64"),
    "codec": ("all_reduce:100000:float32:minmax:bits=4", "all_reduce:100000:float32:minmax:bits=8"),
    "codec_or_none": ("all_reduce:100000:float32", "all_reduce:100000:float32:minmax:bits=8"),
    "root": ("broadcast:1000:0", "broadcast:1000:1"),
    "large_root": ("broadcast:1000000:0", "broadcast:1000000:1"),
    "collective": ("all_reduce:1000:float32", "barrier"),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS.keys())
def test_calls_that_differ_fail_on_every_rank_and_name_both(transport, calls):
    usual, odd = calls
    with job(3, lambda rank: ["--call", odd if rank == 2 else usual], transport) as ranks:
        for rank in ranks:
            moment, line = rank.expect("ERROR", "DONE", seconds=20)
            kind, peer, sequence, message = parse_error(line)
            assert (kind, peer) == ("misuse", 2), line
            assert message.count("called") == 2, line
            for call in (usual, odd):
                assert call.split(":")[0] in message, line


def test_missing_rank_is_named_after_the_deadline():
    started = time.monotonic()
    with job(4, [], environment={"QCCL_INIT_TIMEOUT": "2"}, missing=[1, 3]) as ranks:
        for rank in (ranks[0], ranks[2]):
            moment, line = rank.expect("ERROR", seconds=20)
            kind, peer, sequence, message = parse_error(line)
            assert kind == "deadline_exceeded", line
            assert "1, 3" in message, line
            assert moment - started < 8, line


def test_missing_rank_0_names_the_address_that_nobody_serves():
    port = free_port()
    with job(2, [], environment={"QCCL_INIT_TIMEOUT": "2"}, missing=[0], port=port) as ranks:
        moment, line = ranks[1].expect("ERROR", seconds=20)
        assert f"127.0.0.1:{port}" in line, line


def connect_when_it_listens(port, seconds=20):
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline


def test_strangers_on_the_port_disturb_nothing():
    port = free_port()
    strangers = []
    with job(3, ["--call", "all_reduce:100000:float32"], "tcp", missing=[2], port=port) as ranks:
        try:
            for i in range(1000):
                stranger = connect_when_it_listens(port)
                if i % 3 == 0:
                    stranger.sendall(os.urandom(64))
                strangers.append(stranger)
            with job(3, ["--call", "all_reduce:100000:float32"], "tcp", missing=[0, 1], port=port) as late:
                for rank in (ranks[0], ranks[1], late[2]):
                    rank.expect("DONE", seconds=30)
        finally:
            for stranger in strangers:
                stranger.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rank_that_leaves_early_is_named(transport):
    with job(3, lambda rank: ["--call", "barrier"] if rank == 0 else ["--loop"], transport) as ranks:
        for rank in ranks[1:]:
            moment, line = rank.expect("ERROR", seconds=20)
            kind, peer, sequence, message = parse_error(line)
            assert kind in ("peer_lost", "misuse") and "rank 0" in message, line
