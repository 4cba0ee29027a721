"""scripts/wan.sh: a line between hosts has the delay, rate, cap of a flow and loss that it was asked for, and leaves
nothing behind."""

import contextlib
import os
import re
import subprocess
import sys
import time

import pytest
from program import DEADLINE, ROOT

WAN = str(ROOT / "scripts" / "wan.sh")
MEGABYTES = 1e6

# A server that answers every 4 bytes with them, or reads to the end of N connections and says how long that took.
SERVER = """
import socket, sys, threading, time
server = socket.create_server(("10.78.0.2", 0))
print(server.getsockname()[1], flush=True)
connections = [server.accept()[0] for _ in range(int(sys.argv[2]))]
if sys.argv[1] == "echo":
    while received := connections[0].recv(4):
        connections[0].sendall(received)
else:
    def read(connection):
        while connection.recv(1 << 20):
            pass
    start = time.monotonic()
    threads = [threading.Thread(target=read, args=(connection,)) for connection in connections]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(time.monotonic() - start, flush=True)
"""
CLIENT = """
import socket, sys, threading, time
kind, count, size, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
connections = [socket.create_connection(("10.78.0.2", port)) for _ in range(count)]
if kind == "echo":
    least = 1e9
    for _ in range(5):
        start = time.monotonic()
        connections[0].sendall(b"ping")
        connections[0].recv(4)
        least = min(least, time.monotonic() - start)
    print(least)
else:
    def send(connection):
        connection.sendall(bytes(size))
        connection.close()
    threads = [threading.Thread(target=send, args=(connection,)) for connection in connections]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


@pytest.fixture(scope="module", autouse=True)
def permitted():
    check = subprocess.run([WAN, "check"], capture_output=True, text=True, timeout=DEADLINE)
    if check.returncode != 0:
        pytest.skip(check.stderr.strip())


class Line:
    """Hosts far apart. After the `with` block, `report` is what wan.sh printed at the end."""

    def __init__(self, *options: str, hosts: int = 2):
        self.name, self.hosts, self.report = f"wantest{os.getpid()}", hosts, ""
        subprocess.run([WAN, "up", self.name, str(hosts), *options], check=True, timeout=DEADLINE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ended = subprocess.run([WAN, "down", self.name], capture_output=True, text=True, timeout=DEADLINE)
        self.report = ended.stdout
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
        assert self.name not in listed.stdout

    def on(self, host: int, program: str, *arguments) -> list[str]:
        command = [sys.executable, "-c", program, *map(str, arguments)]
        return [WAN, "exec", self.name, str(host), *command]

    def measure(self, kind: str, connections: int = 1, size: int = 0) -> float:
        """Seconds of the fastest answer ("echo"), or until all bytes of all connections were read ("stream")."""
        server = subprocess.Popen(self.on(2, SERVER, kind, connections), stdout=subprocess.PIPE, text=True)
        with contextlib.closing(server.stdout):
            port = server.stdout.readline().strip()
            client = self.on(1, CLIENT, kind, connections, size, port)
            sent = subprocess.run(client, stdout=subprocess.PIPE, text=True, check=True, timeout=DEADLINE)
            return float(sent.stdout or server.stdout.readline())

    def doctor(self, *settings: str) -> str:
        """What `qccl doctor` with a rank on each host prints."""
        job = [f"WORLD_SIZE={self.hosts}", "MASTER_ADDR=10.78.0.1", "MASTER_PORT=29500", *settings]
        command = [*job, str(ROOT / "build" / "qccl"), "doctor"]
        ranks = [
            subprocess.Popen(
                [WAN, "exec", self.name, str(rank + 1), "env", f"RANK={rank}", *command],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(self.hosts)
        ]
        outputs = [rank.communicate(timeout=DEADLINE)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * self.hosts, outputs
        return outputs[0]

    def link(self, host: int, state: str) -> None:
        subprocess.run([WAN, "link", self.name, str(host), state], check=True, timeout=DEADLINE)

    def start_all_reduce(self, options: str, each: int = 1, settings: tuple[str, ...] = ()) -> list[subprocess.Popen]:
        """`qccl perf all_reduce` with so many ranks on each host."""
        perf = [str(ROOT / "build" / "qccl"), "perf", "all_reduce", *options.split()]
        world = each * self.hosts
        job = [f"WORLD_SIZE={world}", "MASTER_ADDR=10.78.0.1", "MASTER_PORT=29500", "QCCL_LOG=info", *settings]
        return [
            subprocess.Popen(
                [WAN, "exec", self.name, str(rank // each + 1), "env", f"RANK={rank}", *job, *perf],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]

    def all_reduce(self, options: str, each: int = 1, settings: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        """What each of those ranks prints, and its log."""
        ranks = self.start_all_reduce(options, each, settings)
        results = [rank.communicate(timeout=DEADLINE) for rank in ranks]
        for rank, (out, log) in zip(ranks, results, strict=True):
            assert rank.returncode == 0, out + log
        return results


def test_an_answer_takes_twice_the_delay():
    with Line("--delay", "30ms") as line:
        assert 0.060 <= line.measure("echo") < 0.090


def test_a_stream_is_no_faster_than_the_line():
    with Line("--rate", "80mbit") as line:
        assert line.measure("stream", size=int(10 * MEGABYTES)) >= 0.95


def test_the_ways_out_and_in_have_rates_of_their_own_and_so_has_a_host():
    size = 1 << 20
    with Line("--rate", "80mbit", "--up-rate", "16mbit", "--delay", "1ms") as line:
        assert size / 2e6 * 0.95 < line.measure("stream", size=size)
    with Line("--rate", "80mbit", "--delay", "1ms", "--host", "2", "--down-rate", "16mbit") as line:
        assert size / 2e6 * 0.95 < line.measure("stream", size=size)
    with Line("--rate", "80mbit", "--delay", "1ms", "--host", "2", "--up-rate", "8mbit") as line:
        assert line.measure("stream", size=size) < size / 2e6 * 0.95


def test_an_uplink_that_holds_drops_nothing_where_another_does():
    size = 4 << 20
    short = ("--rate", "40mbit", "--delay", "1ms", "--gso", "2k", "--cc", "cubic")
    with Line(*short, "--up-queue", "16k") as dropping:
        dropping.measure("stream", connections=4, size=size)
    assert not re.search(r"host 1: .* 0 out", dropping.report), dropping.report
    with Line(*short, "--uplink", "holds") as holding:
        assert size / 5e6 * 0.95 < holding.measure("stream", connections=4, size=size)
    assert re.search(r"host 1: .* 0 out", holding.report), holding.report


def test_other_traffic_takes_a_part_of_the_line():
    size = 1 << 20
    with Line("--rate", "40mbit", "--delay", "1ms", hosts=2) as line:
        subprocess.run([WAN, "cross", line.name, "1", "2", "4"], check=True, timeout=DEADLINE)
        at_work = "import socket, time\nwhile socket.socket().connect_ex(('10.78.0.2', 5001)): time.sleep(0.01)"
        subprocess.run(line.on(1, at_work), check=True, timeout=DEADLINE)
        line.measure("stream", size=size)
    assert int(re.search(r"host 1: (\d+) bytes out", line.report)[1]) > 1.3 * size, line.report


def test_each_flow_has_a_cap_of_its_own():
    with Line("--rate", "80mbit", "--flow-rate", "20mbit") as line:
        one = line.measure("stream", size=int(2.5 * MEGABYTES))
        four = line.measure("stream", connections=4, size=int(2.5 * MEGABYTES))
    assert one >= 0.9 and four >= 0.9
    assert four < 3 * one, "under one cap four flows would take four times as long"


def test_lost_packets_are_counted_and_sent_again():
    with Line("--loss", "0.02", "--gso", "4k") as line:
        line.measure("stream", size=int(2 * MEGABYTES))
    assert sum(int(count) for count in re.findall(r"(\d+) lost", line.report)) > 0


def test_ranks_far_apart_agree_on_their_round_trip_and_add_right():
    with Line("--rate", "200mbit", "--delay", "30ms") as line:
        results = line.all_reduce("-b 4 -e 4M -f 1024 -n 2 -w 1 -c 1")
    for _, log in results:
        apart = re.findall(r"group 'world' has ranks ([\d.]+) ms apart", log)
        assert apart and 60 <= float(apart[0]) < 90, log
    assert "Out of bounds values : 0 OK" in results[0][0]


def test_ranks_far_apart_have_several_connections_and_add_right_over_them():
    with Line("--rate", "200mbit", "--delay", "30ms", "--wmem", "256k") as line:
        by_distance = line.all_reduce("-b 4 -e 4M -f 1024 -n 2 -w 1 -c 1")
        told = line.all_reduce("-b 4 -e 4M -f 1024 -n 2 -w 1 -c 1", 2, ("QCCL_CONNECTIONS=3", "QCCL_TRANSPORT=tcp"))
    for results, connections in (by_distance, 8), (told, 3):
        assert f"tcp by {connections} connections to rank" in results[0][0], results[0][0]
        assert "Out of bounds values : 0 OK" in results[0][0]


def test_doctor_says_that_four_connections_carry_more_where_each_has_a_cap():
    with Line("--rate", "1gbit", "--flow-rate", "200mbit") as line:
        said = line.doctor()
        told = line.doctor("QCCL_CONNECTIONS=4")
    times = re.search(r"rank 0 to rank 1: four connections carry ([\d.]+) times as much as one", said)
    assert times and float(times[1]) > 2, said
    assert "QCCL_CONNECTIONS=8" in said
    assert "QCCL has 4\n" in told and "fix: QCCL_CONNECTIONS" not in told, told


def test_doctor_names_the_buffers_that_limit_a_distant_pair():
    with Line("--rate", "400mbit", "--delay", "30ms", "--wmem", "256k") as line:
        said = line.doctor("QCCL_CONNECTIONS=1")
    assert "which TCP's buffers limit" in said and "sysctl -w net.ipv4.tcp_wmem=" in said, said


def test_doctor_measures_each_line_both_ways():
    with Line("--rate", "200mbit", hosts=3) as line:
        said = line.doctor("QCCL_CONNECTIONS=3")
    pairs = re.findall(r"^line +rank (\d) to rank (\d): .* ms there and back; ", said, re.MULTILINE)
    assert sorted(pairs) == [(a, b) for a in "012" for b in "012" if a != b], said
    assert "by 3 connections to ranks 1, 2" in said and said.count("QCCL has 3\n") == 6, said


def test_doctor_names_a_queue_that_is_short_and_no_other():
    with Line("--rate", "50mbit", "--delay", "10ms", "--queue", "24k", "--gso", "2k") as line:
        short = line.doctor()
    with Line("--rate", "50mbit", "--delay", "10ms") as line:
        good = line.doctor()
    found = re.findall(r"its queue is short, about ([\d.]+) KB or .* ms: .* % of the packets were sent again", short)
    assert found and all(10 < float(size) < 40 for size in found), short
    assert "queue" not in good and "middle one" not in good and "other programs" not in good, good


def test_doctor_takes_a_line_that_loses_packets_for_no_short_queue():
    with Line("--rate", "200mbit", "--delay", "10ms", "--loss", "0.01", "--gso", "2k") as line:
        said = line.doctor()
    assert "% of the packets were sent again without a queue" in said, said


def test_doctor_names_the_host_whose_line_is_slow():
    with Line("--rate", "50mbit", "--delay", "2ms", "--host", "3", "--rate", "20mbit", hosts=4) as line:
        said = line.doctor()
    for verb in ("sends", "receives"):
        found = re.search(rf"^line +rank 2's host {verb} ([\d.]+) Mbit/s, the middle one ([\d.]+)", said, re.MULTILINE)
        assert found and float(found[1]) < 25 and float(found[2]) > 40, said
    assert said.count("middle one") == 2, said


def test_doctor_names_the_host_whose_line_other_programs_use():
    with Line("--rate", "50mbit", "--delay", "2ms", hosts=3) as line:
        subprocess.run([WAN, "cross", line.name, "2", "3"], check=True)
        said = line.doctor()
    used = re.findall(r"other programs sent ([\d.]+) Mbit/s from rank (\d)'s host and received ([\d.]+)", said)
    assert [rank for _, rank, _ in used] == ["1", "2"], said
    assert float(used[0][0]) > 20 and float(used[1][2]) > 20, said


def test_eight_ranks_far_apart_are_ready_soon():
    """tests/threads/start_test.cc counts the round trips; the first ranks also wait for the start of the last."""
    with Line("--rate", "1gbit", "--delay", "50ms", hosts=8) as line:
        results = line.all_reduce("-b 4 -e 4 -n 1 -w 0 -c 0")
    ready = [float(re.search(r"is ready after ([\d.]+) s", log)[1]) for _, log in results]
    assert len(ready) == 8
    assert 0.5 <= min(ready) < 1.5, ready


def test_a_rank_that_leaves_while_the_line_is_out_loses_nothing():
    """Rank 0 sends and leaves; for 6 s nothing gets through; rank 1, which has sent heartbeats meanwhile, gets all."""
    program = str(ROOT / "build" / "tests" / "leaving_rank")
    job = ["WORLD_SIZE=2", "MASTER_ADDR=10.78.0.1", "MASTER_PORT=29500"]
    with Line("--rate", "1gbit", "--delay", "10ms") as line:
        ranks = [
            subprocess.Popen(
                [WAN, "exec", line.name, str(rank + 1), "env", f"RANK={rank}", *job, program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        for rank in ranks:
            assert rank.stdout.readline() == "ready\n", rank.communicate(timeout=DEADLINE)
        line.link(1, "down")
        for rank in ranks:
            print("go", file=rank.stdin, flush=True)
        time.sleep(6)  # how long the line is out
        line.link(1, "up")
        results = [rank.communicate(timeout=DEADLINE) for rank in ranks]
    for rank, (out, log) in zip(ranks, results, strict=True):
        assert rank.returncode == 0 and out == "got all\n", (out, log)


def test_sums_go_on_after_the_line_of_a_host_was_out():
    with Line("--rate", "50mbit", "--delay", "10ms", hosts=3) as line:
        ranks = line.start_all_reduce("-b 512K -e 2M -f 4 -n 4 -w 0 -c 1")
        while not re.match(r" +524288 ", ranks[0].stdout.readline()):
            assert ranks[0].poll() is None
        line.link(2, "down")
        time.sleep(10)  # how long the line is out
        line.link(2, "up")
        results = [rank.communicate(timeout=DEADLINE) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], results
    assert re.search(r"^ +2097152 ", results[0][0], re.M) and "# Out of bounds values : 0 OK" in results[0][0]


SHARES = r"owners' shares of \[([\d ]+)\] %"


def test_hosts_with_equal_lines_have_equal_shares():
    with Line("--rate", "100mbit", "--delay", "10ms", hosts=4) as line:
        results = line.all_reduce("-b 2M -e 2M -n 12 -w 0 -c 1")
    assert re.search(r"a line carries", results[0][1]), results[0]
    assert not any(re.search(SHARES, log) for _, log in results), results


def test_a_host_whose_line_is_slow_owns_less_and_sums_stay_right():
    with Line("--rate", "100mbit", "--delay", "10ms", "--host", "4", "--rate", "20mbit", hosts=4) as line:
        results = line.all_reduce("-b 2M -e 2M -n 12 -w 0 -c 1")
    learned = [[[int(share) for share in each.split()] for each in re.findall(SHARES, log)] for _, log in results]
    assert learned[0] and all(shares == learned[0] for shares in learned), results
    assert all(shares[3] < 50 < min(shares[:3]) for shares in learned[0]), learned
    assert "# Out of bounds values : 0 OK" in results[0][0], results[0]


def test_wrong_options_are_an_error_and_leave_nothing_behind():
    refused = subprocess.run([WAN, "up", "wanwrong", "2", "--delay", "long"], capture_output=True, text=True)
    assert refused.returncode != 0 and "--delay: long" in refused.stderr
    assert "wanwrong" not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


def test_the_link_ends_with_its_hosts():
    start = time.monotonic()
    with Line("--delay", "1ms"):
        pass
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert f"--cluster wantest{os.getpid()}" not in listed
    assert time.monotonic() - start < DEADLINE


def test_ranks_find_out_which_of_them_are_near():
    with Line("--rate", "200mbit", "--delay", "20ms") as line:
        results = line.all_reduce("-b 1M -e 1M -n 2 -w 1 -c 1 --algorithm hierarchical", 2, ("QCCL_HOSTS=4x1",))
    for rank, (_, log) in enumerate(results):
        assert re.search(rf"rank {rank}: group 'world' has ranks 4\d\.\d ms apart .* in 2 sites", log), log


def test_ranks_learn_the_rate_of_their_line_alike_unless_it_is_given():
    perf = "-b 4M -e 4M -n 12 -w 0"
    with Line("--rate", "200mbit", "--delay", "10ms") as line:
        learned = line.all_reduce(perf)
        given = line.all_reduce(perf, settings=("QCCL_LINK_RATE=10gbit",))
    rates = [re.findall(r"a line carries ([0-9.]+) Gbit/s: a window of (\d+) bytes", log) for _, log in learned]
    assert rates[0], "a default of 10 Gbit/s is far from 0.2"
    assert rates[0] == rates[1]
    assert all(0.02 < float(rate) < 0.4 for rate, _ in rates[0]), rates
    held = [int(window) / (float(rate) * 1.25e8) for rate, window in rates[0]]
    assert all(0.024 < seconds < 0.04 for seconds in held), "a window is a round trip and 5 ms of the line"
    assert not any("a line carries" in log for _, log in given)
