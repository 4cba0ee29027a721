"""`qccl plan`: its checks, plans and simulations, and how it fails."""

import os
import pty
import re
import subprocess

import pytest
from program import PROGRAM, ROOT, environment, run

MISTAKES = {
    "missing_contribution": "lacks the contribution of rank",
    "double_contribution": "2 times",
    "different_order": "not in rank order",
    "unreceived_send": "which nobody receives",
    "overwritten_input": "reads input that its result has overwritten",
    "crossed_waits": "deadlock",
}


def test_check_finds_nothing_wrong_and_counts_what_it_checked():
    done = run("plan", "check", "--max-world", 5)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.endswith(" s")]
    *each, total = rows
    assert {row[0] for row in each} >= {"all_reduce", "reduce_scatter", "all_to_all", "barrier"}
    assert total[0] == "all" and int(total[1]) == sum(int(row[2]) for row in each) > 1000
    assert f"{total[1]} plans checked for worlds 1 to 5: nothing wrong" in done.stdout


@pytest.mark.parametrize(("mistake", "words"), MISTAKES.items())
def test_check_fails_on_a_planted_mistake_and_names_it(mistake, words):
    done = run("plan", "check", "--max-world", 5, "--plant", mistake)
    assert done.returncode == 1
    assert f"with a planted {mistake}: " in done.stderr and words in done.stderr, done.stderr


def test_check_fails_if_no_plan_has_room_for_the_mistake():
    done = run("plan", "check", "--max-world", 5, "--collective", "gather", "--plant", "double_contribution")
    assert done.returncode == 2 and "nothing wrong" not in done.stdout
    words = r"the mistake double_contribution was planted in 0 of \d+ plans: none has room"
    assert re.search(words, done.stderr), done.stderr


def test_check_of_an_algorithm_that_the_collective_lacks_is_a_usage_error():
    done = run("plan", "check", "--collective", "gather", "--algorithm", "ring")
    assert done.returncode == 2 and "gather has no algorithm ring" in done.stderr


def test_show_names_choice_reason_prices_and_steps():
    done = run("plan", "show", "all_reduce", "--world", 8, "--bytes", "64M")
    assert done.returncode == 0, done.stderr
    assert "all_reduce of 16777216 float32 (64 MiB)" in done.stdout
    assert "chosen: sra: ring would save 0 % only, and add in another order than that of ranks" in done.stdout
    assert re.search(r"^\* +sra ", done.stdout, re.M)
    assert "rank 0:" in done.stdout and "send_result phase 1 peers [1 2 3 4 5 6 7]" in done.stdout
    assert "rank 1:" not in done.stdout


def test_show_has_all_of_a_lane_and_marks_what_is_only_on_request():
    call = ("plan", "show", "reduce_scatter", "--world", 4, "--bytes", "1M")
    done = run(*call, "--algorithm", "exchange", "--rank", 1)
    assert "chosen: exchange: asked for" in done.stdout
    lanes = re.findall(r"^(lane .*:)$", done.stdout, re.M)
    assert lanes[0] == "lane 0: chunk 2, input [131072, 196608), in scratch:"
    assert lanes[2] == "lane 2: chunk 0, input [0, 65536), in scratch, after lane 1 slice by slice:"
    assert lanes[3] == "lane 3: chunk 1, input [65536, 131072), output [0, 65536):"
    assert re.search(rf"^- +exchange .*  {UNMEASURED}$", run(*call).stdout, re.M)


def test_show_of_small_data_chooses_swaps_and_all_ranks_can_be_shown():
    done = run("plan", "show", "all_reduce", "--hosts", "2x2", "--bytes", "1K", "--all")
    assert "4 ranks on 2 hosts" in done.stdout and "chosen: recursive_doubling: saves" in done.stdout
    assert all(f"rank {rank}:" in done.stdout for rank in range(4))


def predicted(text: str) -> dict[str, tuple[str, float]]:
    """{algorithm: (mark, predicted microseconds)}."""
    units = {"us": 1, "ms": 1e3, "s": 1e6}
    rows = re.findall(r"^([* -]) +(\w+) +([\d.e+]+) (us|ms|s) ", text, re.M)
    return {name: (mark, float(time) * units[unit]) for mark, name, time, unit in rows}


def test_show_chooses_by_hosts_and_profile_and_says_what_is_saved(tmp_path):
    flags = ("plan", "show", "all_reduce", "--hosts", "2x4", "--bytes", "64M")
    done = run(*flags, "--rate", "1gbit")
    prices = predicted(done.stdout)
    assert {name for name, (mark, _) in prices.items() if mark == "*"} == {"hierarchical"}
    saved = int(re.search(r"chosen: hierarchical: saves (\d+) % of the time of sra", done.stdout)[1])
    assert saved == pytest.approx(100 * (1 - prices["hierarchical"][1] / prices["sra"][1]), abs=1)
    file = tmp_path / "slow.profile"
    file.write_text("machine of mine\nwire.host_Gbps 1\n")
    assert predicted(run(*flags, "--profile", file).stdout) == prices
    assert "profile: of mine" in run(*flags, "--profile", file).stdout


def test_sites_are_near_inside_and_share_a_line():
    sites = ("all_reduce", "--hosts", "8x1", "--sites", 2, "--latency", "50ms", "--near-latency", "100us")
    shown = run("plan", "show", *sites, "--rate", "10gbit", "--site-rate", "1gbit", "--bytes", "16M").stdout
    assert "8 hosts in 2 sites, 100 us in a site, 10 Gbit/s and 50 ms between them, 1 Gbit/s between sites" in shown
    assert "chosen: hierarchical: saves" in shown
    rows = rows_of(run("plan", "simulate", *sites, "--rate", "1gbit", "-b", "4K").stdout)
    assert 50 < float(rows[4096, "recursive_doubling"][0]) < 51 and float(rows[4096, "sra"][0]) >= 100
    refused = run("plan", "show", "all_reduce", "--world", 8, "--sites", 3, "--bytes", 4)
    assert refused.returncode == 2 and "8 hosts can't be divided among 3 sites" in refused.stderr


def test_owners_shares_follow_the_rates_of_slow_hosts():
    flags = ("plan", "simulate", "all_reduce", "--world", 8, "--rate", "1gbit", "--latency", "5ms", "-b", "64M")

    def sra(*more) -> tuple[float, str]:
        text = run(*flags, "--algorithm", "sra", *more).stdout
        return milliseconds(rows_of(text)[64 << 20, "sra"]), text

    equal, _ = sra()
    learned, text = sra("--slow-host", "3:2")
    assert "1 Gbit/s and 5 ms between them, 0.5 Gbit/s to host 3, owners' shares [114 114 114 0 114" in text
    assert learned < 1.2 * equal
    unaware, text = sra("--slow-host", "3:2", "--equal-shares")
    assert unaware > 1.9 * equal and "shares" not in text
    shown = run("plan", "show", "all_reduce", "--world", 3, "--bytes", 4096, "--slow-host", "0:4", "--algorithm", "sra")
    assert "output [512, 1024)" in shown.stdout and "lane 4" not in shown.stdout, shown.stdout
    for wrong in ("8:2", "1", "1:0.5", "x:2"):
        refused = run(*flags, "--slow-host", wrong)
        assert refused.returncode == 2 and f"--slow-host {wrong} is not HOST:FACTOR" in refused.stderr


OUTER = ("plan", "outer", "--parameters", "10M", "--world", 4, "--latency", "20ms", "--step-seconds", "400ms")


def outer_rows(*flags) -> dict[tuple[str, int], tuple[int, int, float, float]]:
    """{(codec, fragments): (H, delay, seconds of a round, percent computing)}."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1}
    text = run(*OUTER, *flags).stdout
    rows = re.findall(r"^(\S+) +(\d+) +(\d+) +(\d+) +([\d.e+]+) (us|ms|s) +([\d.]+)% +\d+$", text, re.M)
    return {(r[0], int(r[1])): (int(r[2]), int(r[3]), float(r[4]) * units[r[5]], float(r[6])) for r in rows}


def test_outer_finds_the_smallest_h_that_keeps_ranks_computing():
    slow, fast = outer_rows("--rate", "50mbit"), outer_rows("--rate", "1gbit")
    assert len(slow) == 7 * 3 and slow.keys() == fast.keys()
    for (_, fragments), (every, delay, seconds, computing) in slow.items():
        work = 0.4 * every
        assert computing == pytest.approx(100 * work / (work + fragments * max(0, seconds - 0.4 * delay)), abs=0.5)
        assert computing >= 90 and delay <= min(10, every // fragments)
    assert all(fast[key][0] <= slow[key][0] for key in slow)
    assert any(fast[key][0] < slow[key][0] for key in slow)
    by_bits = [slow[codec, 4][0] for codec in ("none", "int:bits=8", "int:bits=4", "h4:bits=2")]
    assert by_bits == sorted(by_bits, reverse=True) and by_bits[0] > by_bits[-1]


def test_outer_asks_for_what_it_needs():
    half, most = (outer_rows("--rate", "50mbit", "--computing", share) for share in (0.5, 0.9))
    assert half["none", 1][0] < most["none", 1][0]
    refused = run("plan", "outer", "--parameters", "10M", "--world", 4, "--step-seconds", "0s")
    assert refused.returncode == 2 and "--step-seconds is not above 0" in refused.stderr


def test_connections_have_buffers_and_caps():
    far = ("plan", "simulate", "all_reduce", "--world", 2, "--rate", "1gbit", "--latency", "50ms", "-b", "16M")
    flags = ("--algorithm", "sra")

    def seconds(*more):
        time, unit = rows_of(run(*far, *flags, *more).stdout)[16 << 20, "sra"][:2]
        return float(time) * {"ms": 1e-3, "s": 1}[unit]

    open_line, buffered = seconds(), seconds("--buffer", "1M")
    assert buffered > 2 * open_line and seconds("--buffer", "1M", "--connections", 16) < 1.1 * open_line
    capped = seconds("--flow-rate", "100mbit")
    assert capped > 3 * open_line and seconds("--flow-rate", "100mbit", "--connections", 4) < 0.4 * capped


def test_queues_drop_packets_that_are_sent_again():
    line = ("plan", "simulate", "all_reduce", "--world", 4, "--rate", "200mbit", "--latency", "10ms", "-b", "4M")
    flags = (*line, "--algorithm", "sra")
    endless = run(*flags).stdout
    assert "queues" not in endless and "resent" not in endless
    short = run(*flags, "--up-queue", "64K", "--loss", "0.001", "--congestion", "bbr", "--packet", "8K").stdout
    assert "# queues: 64 KiB up, endless down; 0.1% of packets lost; TCP bbr, packets of up to 8 KiB" in short
    assert re.search(r"held \(B\) dropped up +down +lost +resent +timeouts$", short, re.M)
    up, down, lost, resent, _timeouts = map(int, rows_of(short)[4 << 20, "sra"][-5:])
    assert up > 0 and lost > 0 and down == 0 and resent >= up + lost
    warm = run(*flags, "--up-queue", "256K", "--congestion", "bbr", "--warm-up", 2).stdout
    cold = run(*flags, "--up-queue", "256K", "--congestion", "bbr").stdout
    times = [milliseconds(rows_of(text)[4 << 20, "sra"]) for text in (endless, warm, cold)]
    assert times[0] < times[1] < times[2]


UNMEASURED = "not measured against the others: only on request"


def obstacles(*flags: object) -> dict[str, str]:
    """{algorithm that may not be chosen: reason}, except those that nobody has measured."""
    done = run("plan", "show", *flags, "--world", 8)
    found = dict(re.findall(r"^- +(\w+) .* \d+  (\S.*)$", done.stdout, re.M))
    return {name: reason for name, reason in found.items() if reason != UNMEASURED}


def test_show_marks_what_may_not_be_chosen_and_says_why():
    large = obstacles("all_reduce", "--bytes", "64M", "--compression", "minmax:bits=4")
    hops = dict.fromkeys(("ring", "tree"), "rounds partial sums at every hop")
    lanes = dict.fromkeys(("one_shot", "recursive_doubling"), "sends one slice after another: for 1 MiB at most")
    hosts = {"hierarchical": "saves nothing on these hosts"}
    assert large == hops | lanes | hosts
    small = obstacles("all_reduce", "--bytes", "256K", "--compression", "minmax:bits=4")
    encodes = {"one_shot": "every rank would encode and decode everything"}
    assert small == hops | {"recursive_doubling": hops["ring"]} | encodes | hosts
    assert obstacles("all_reduce", "--bytes", "64M") == lanes | hosts
    assert obstacles("all_reduce", "--bytes", "64M", "--hosts", 2) == lanes
    assert obstacles("all_reduce", "--bytes", "64M", "--latency", "50ms") == hosts
    assert obstacles("gather", "--bytes", "64M") == {}


def rows_of(text: str) -> dict[tuple[int, str], list[str]]:
    """{(size, algorithm): time and its unit, then the other columns}."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {(int(row[0]), row[1].rstrip("*")): row[2:] for row in rows}


SIMULATE = ("plan", "simulate", "--world", 16, "--hosts", 4, "all_reduce", "-b", "64K", "-e", "4M", "-f", 8)


def test_a_seed_below_0_is_refused():
    done = run(*SIMULATE, "--seed", "-1")
    assert done.returncode == 2 and "-1 is below 0" in done.stderr, done.stderr


def test_simulation_with_the_same_seed_has_the_same_output_and_another_seed_another():
    outputs = [run(*SIMULATE, "--jitter", "30us", "--seed", seed).stdout for seed in (7, 7, 8)]
    sizes = {size for size, _ in rows_of(outputs[0])}
    assert len(rows_of(outputs[0])) == len(sizes) * len({name for _, name in rows_of(outputs[0])}) and len(sizes) == 3
    assert outputs[0] == outputs[1] != outputs[2].replace("seed 8", "seed 7")


def test_simulated_time_is_at_least_what_the_links_allow_and_accounts_for_itself():
    bytes_, rate = 64 << 20, 125e6
    flags = ("--world", 4, "--rate", "1gbit", "--algorithm", "ring")
    done = run("plan", "simulate", *flags, "all_reduce", "-b", bytes_)
    time, unit, *parts, sent, _frames, _held = rows_of(done.stdout)[bytes_, "ring"]
    seconds = float(time) * {"ms": 1e-3, "s": 1}[unit]
    least = 2 * 3 / 4 * bytes_ / rate
    assert least < seconds < 1.15 * least
    assert least * rate <= int(sent) < 1.01 * least * rate
    assert len(parts) == 4 and abs(sum(float(part.rstrip("%")) for part in parts) - 100) < 0.3


def test_ranks_that_share_cores_take_longer_and_a_burst_shortens():
    flags = ("--world", 4, "all_reduce", "--rate")
    sharing = ("--cores", 1, "--hosts-per-machine", 4)

    def time(rate: str, *more: object) -> float:
        done = run("plan", "simulate", *flags, rate, "--algorithm", "sra", "-b", "1M", *more)
        return milliseconds(rows_of(done.stdout)[1 << 20, "sra"])

    assert time("100gbit", "--cores", 1) == time("100gbit") < time("100gbit", *sharing) / 2
    saved = time("1gbit") - time("1gbit", "--burst", 125000)  # a millisecond of the link's rate; the link sends more
    assert 0.9 < saved < 2.1
    own, shared = (run("plan", "show", *flags, "100gbit", "--bytes", "1M", *more).stdout for more in ((), sharing))
    assert predicted(own)["sra"][1] < predicted(shared)["sra"][1]


def test_racks_share_their_uplinks():
    """Each of a rack's 4 hosts sends a part to each of the other rack's 4, all over one link."""
    bytes_, rack_rate = 4 << 20, 125e6
    layout = ("--world", 8, "--rate", "10gbit", "--algorithm", "one_shot")
    flags = ("plan", "simulate", *layout, "all_to_all", "-b", bytes_)
    free, one, two = (
        milliseconds(rows_of(run(*flags, *more).stdout)[bytes_, "one_shot"])
        for more in ((), ("--rack-rate", "1gbit"), ("--racks", 2, "--rack-rate", "1gbit"))
    )
    assert one == free  # no data leaves the only rack
    least = 1e3 * 4 * 4 * (bytes_ / 8) / rack_rate
    assert 10 * free < least < two < 1.15 * least
    more = run(*flags, "--racks", 9)
    assert more.returncode == 2 and "more racks than hosts" in more.stderr


def test_compression_shortens_a_simulated_operation():
    flags = ("plan", "simulate", "--world", 4, "--rate", "1gbit", "--algorithm", "sra", "all_reduce", "-b", "64M")
    done = [run(*flags, "--compression", codec).stdout for codec in ("none", "minmax:bits=4")]
    times = [milliseconds(rows_of(text)[64 << 20, "sra"]) for text in done]
    assert 7 < times[0] / times[1] < 8.1, times


def test_straggler_slows_down_and_a_lost_rank_fails_the_others():
    flags = ("plan", "simulate", "--world", 8, "--algorithm", "sra", "all_reduce", "-b", "4M")
    usual, slow = (rows_of(run(*flags, *more).stdout)[4 << 20, "sra"] for more in ((), ("--straggler", "3:10")))
    assert slow[1] == usual[1] == "ms" and float(slow[0]) > 5 * float(usual[0])
    lost = run(*flags, "--lose", "3@1ms")
    assert lost.returncode == 0, lost.stderr
    assert "failed on 7 ranks" in lost.stdout and "rank 3 was lost" in lost.stdout


def milliseconds(row: list[str]) -> float:
    return float(row[0]) * {"us": 1e-3, "ms": 1, "s": 1e3}[row[1]]


def test_everybody_waits_for_a_late_rank_and_for_a_stopped_one_until_the_deadline():
    flags = ("plan", "simulate", "--world", 8, "--algorithm", "sra", "all_reduce", "-b", "4M")
    usual = run(*flags)
    late = run(*flags, "--late", "3@20ms", "--late", "5@1ms")
    stopped = run(*flags, "--stop", "3@1ms", "--timeout", "2s")
    times = [milliseconds(rows_of(done.stdout)[4 << 20, "sra"]) for done in (usual, late, stopped)]
    assert 20 < times[1] < 20 + 2 * times[0] < 50
    assert 2000 <= times[2] < 2001 and stopped.returncode == 0
    assert "failed on 7 ranks" in stopped.stdout and "waiting for rank 3 (" in stopped.stdout
    hasty = run(*flags, "--timeout", "1ms")
    assert hasty.returncode == 1 and "the deadline of 0.001 s passed" in hasty.stdout


def test_a_terminal_sees_how_far_a_simulation_is_and_a_file_only_the_table():
    flags = ("plan", "simulate", "--world", 32, "all_reduce", "-b", "16M", "--algorithm", "one_shot")
    done = run(*flags)
    assert done.stderr == "" and done.returncode == 0
    primary, secondary = pty.openpty()
    try:
        command = [str(PROGRAM), *map(str, flags)]
        shown = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=secondary, text=True)
        seen = os.read(primary, 1 << 16).decode()
    finally:
        os.close(primary)
        os.close(secondary)
    assert shown.stdout == done.stdout
    assert "[1/1] 16 MiB one_shot: 0% of 1.3e+05 frames" in seen, seen
    percents = [int(percent) for percent in re.findall(r"one_shot: (\d+)%", seen)]
    assert percents == sorted(percents) and len(percents) > 3 and 50 < percents[-1] < 100
    assert seen.endswith("\r\x1b[K")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("show", "all_reduce", "--bytes", "1M"), "--world"),
        (("show", "all_reduce", "--world", 8, "--hosts", "3x2", "--bytes", "1M"), "are 6 ranks, not 8"),
        (("show", "gather", "--world", 8, "--bytes", "1M", "--compression", "minmax:bits=4"), "can't be compressed"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--straggler", "9:2"), "RANK:FACTOR"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--lose", "1@soon"), "--lose 1@soon is not RANK@TIME"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--late", "8@1ms"), "--late 8@1ms is not RANK@TIME"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--stop", "1@1ms"), "--stop needs --timeout"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--loss", "2"), "--loss is a share of the packets"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--loss", "nan"), "--loss is a share of the packets"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--congestion", "bbr"), "they need --up-queue"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--loss", "0.1", "--packet", "1K"), "--packet is from"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--up-queue", "1K"), "holds no packet"),
        (("simulate", "all_reduce", "--world", 8, "-b", "1M", "--congestion", "reno"), "only cubic bbr"),
        (("simulate", "barrier", "--world", 8, "-b", "1M", "--algorithm", "ring"), "has no algorithm ring"),
        (("show", "all_reduce", "--world", 8, "--bytes", "1M", "--profile", "/no/such"), "can't be read"),
        (("guess",), "check, outer, show and simulate"),
    ],
)
def test_wrong_flags_are_a_usage_error_that_says_what_is_wrong(flags, words):
    done = run("plan", *flags)
    assert done.returncode == 2 and words in done.stderr, done.stderr


WITH_NVLINK = ("--inside-rate", "3600gbit", "--hosts", "4x8", "--compression", "int:bits=4")


def test_show_predicts_another_library_inside_the_hosts():
    done = run("plan", "show", "all_reduce", "--bytes", "64M", "--rate", "10gbit", *WITH_NVLINK)
    assert done.returncode == 0, done.stderr
    found = re.search(
        r"([\d.]+) ms  compression int:.*: (\d+) us inside, ([\d.]+) ms between hosts \(sra of 8 MiB", done.stdout
    )
    whole, inside, between = (float(each) for each in found.groups())
    assert inside == pytest.approx(2 * 7 / 8 * 64 * 2**20 * 8 / 3600e9 * 1e6 + 40, abs=1)
    assert whole == pytest.approx(between + inside / 1000, rel=0.01)
    best = float(re.search(r"([\d.]+) ms  uncompressed at best", done.stdout).group(1))
    assert best == pytest.approx(2 * 3 / 4 * 64 * 2**20 * 8 / 10e9 * 1514 / 1448 * 1e3 + inside / 1000, rel=0.01)
    assert whole < best / 5


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
def test_show_says_up_to_which_rate_compression_pays(collective):
    def show(rate):
        done = run("plan", "show", collective, "--bytes", "64M", "--rate", rate, *WITH_NVLINK)
        limit = float(re.search(r"pays on lines of up to ([\d.]+) Gbit/s", done.stdout).group(1))
        times = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
        rows = re.findall(r"^ +([\d.]+) (us|ms|s)  (?:compression|uncompressed)", done.stdout, re.M)
        compressed, uncompressed = (float(value) * times[unit] for value, unit in rows)
        return limit, compressed, uncompressed

    limit, _, _ = show("10gbit")
    _, compressed, uncompressed = show(f"{0.8 * limit:.0f}gbit")
    assert compressed < uncompressed
    _, compressed, uncompressed = show(f"{1.25 * limit:.0f}gbit")
    assert compressed > uncompressed


def test_show_says_nothing_of_another_library_where_there_is_none():
    for layout in (["--world", 8], ["--hosts", "2x4"], ["--hosts", 8, "--world", 8, "--inside-rate", "1000gbit"]):
        done = run("plan", "show", "all_reduce", "--bytes", "64M", *layout)
        assert done.returncode == 0 and "another library" not in done.stdout, done.stderr


def test_simulate_agrees_with_show_on_another_library_inside():
    show = run("plan", "show", "all_reduce", "--bytes", "64M", "--rate", "10gbit", *WITH_NVLINK)
    predicted = float(re.search(r"([\d.]+) ms  compression int", show.stdout).group(1))
    done = run("plan", "simulate", "all_reduce", "-b", "64M", "--rate", "10gbit", *WITH_NVLINK)
    assert done.returncode == 0, done.stderr
    simulated = float(re.search(r" in\+sra +([\d.]+) ms", done.stdout).group(1))
    assert simulated == pytest.approx(predicted, rel=0.25)


def test_the_profile_of_gpu_hosts_is_one():
    profile = ROOT / "examples/profiles/8xh100.profile"
    done = run("plan", "show", "all_reduce", "--hosts", "2x8", "--bytes", "64M", "--profile", profile)
    assert done.returncode == 0, done.stderr
    assert "with another library inside the hosts, at 3600 Gbit/s a rank" in done.stdout
