"""`qccl perf`: nccl-tests' table, its exit codes, the JSON, and the checks of results."""

import json
import re
import socket
import subprocess
from dataclasses import dataclass

import pytest
from program import PROGRAM, algorithms, environment, run

ROOTED = ["broadcast", "reduce", "gather", "scatter"]
REDUCTIONS = ["all_reduce", "reduce_scatter", "reduce"]
MOVES = ["broadcast", "all_gather", "gather", "scatter", "all_to_all", "sendrecv"]
COLLECTIVES = [
    "all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce", "gather", "scatter", "all_to_all", "sendrecv"
]  # fmt: skip
# nccl-tests' names of the collectives.
NCCL_TESTS = [("alltoall" if name == "all_to_all" else name) for name in COLLECTIVES]
INTEGERS = {"int8": 1, "uint8": 1, "bool": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8}
TYPES = INTEGERS | {"half": 2, "float": 4, "double": 8, "bfloat16": 2}
OPS_OF_ALL = ["sum", "prod", "min", "max"]
OPS_OF_FLOATS = [*OPS_OF_ALL, "avg", "mulsum"]
OPS_OF_INTEGERS = [*OPS_OF_ALL, "band", "bor", "bxor"]

COLUMN_NAMES = (
    "#       size         count      type   redop    root"
    "     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong "
)
COLUMN_UNITS = (
    "#        (B)    (elements)                          "
    "     (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         "
)


@dataclass
class Placement:
    time: float
    algbw: float
    busbw: float
    wrong: str


@dataclass
class Row:
    size: int
    count: int
    type: str
    redop: str
    root: int
    out_of_place: Placement
    in_place: Placement
    wire: int
    ratio: str
    max_error: str
    bound: str


def parse_placement(text: str) -> Placement:
    """'  %7s  %6s  %6s  %6g'."""
    assert len(text) == 33 and text[:2] == text[9:11] == text[17:19] == text[25:27] == "  ", text
    return Placement(float(text[2:9]), float(text[11:17]), float(text[19:25]), text[27:33].strip())


def parse_row(line: str) -> Row:
    """Parses nccl-tests' columns, '%12li  %12li  %8s  %6s  %6s', two placements, then QCCL's columns."""
    fields = line[0:12], line[14:26], line[28:36], line[38:44], line[46:52]
    assert all(line[at : at + 2] == "  " for at in (12, 26, 36, 44)), line
    size, count, type_, redop, root = (field.strip() for field in fields)
    own = line[118:].split()
    return Row(
        int(size), int(count), type_, redop, int(root), parse_placement(line[52:85]), parse_placement(line[85:118]),
        int(own[0]), own[1], own[2], own[3],
    )  # fmt: skip


def rows_of(stdout: str) -> list[Row]:
    return [parse_row(line) for line in stdout.splitlines() if line and not line.startswith("#")]


def perf(*arguments: object, **variables: str) -> list[Row]:
    """Rows of a run that must succeed with all checks passed."""
    result = run("perf", *arguments, **variables)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "# Out of bounds values : 0 OK\n" in result.stdout
    rows = rows_of(result.stdout)
    assert {p.wrong for row in rows for p in (row.out_of_place, row.in_place)} == {"0"}
    return rows


def perf_json(tmp_path, *arguments: object, **variables: str) -> dict:
    file = tmp_path / "results.json"
    perf(*arguments, "--json", file, **variables)
    return json.loads(file.read_text())


# ---- the table


def test_the_table_is_nccl_tests_table():
    result = run("perf", "all_reduce", "-b", "4", "-e", "64K", "-f", "16", "-n", 3, "-w", 2, "-g", 2)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1] == "# Collective test starting: all_reduce_perf"
    assert lines[2] == (
        "# nThread 1 nGpus 2 minBytes 4 maxBytes 65536 step: 16(factor) warmup iters: 2 iters: 3 agg iters: 1 "
        "validation: 1 graph: 0 unalign: 0"
    )
    assert lines[4] == "# Using devices"
    for rank in (0, 1):
        pattern = rf"#  Rank  {rank} Group  0 Pid +\d+ on +\S+ device  {rank} \[0000:00:00\] CPU"
        assert re.fullmatch(pattern, lines[5 + rank]), lines[5 + rank]
    names = next(i for i, line in enumerate(lines) if line.startswith(COLUMN_NAMES))
    assert lines[names - 1] == f"#{'':62}out-of-place{'':23}in-place{'':10}"
    assert lines[names + 1].startswith(COLUMN_UNITS)
    assert [row.size for row in rows_of(result.stdout)] == [4, 64, 1024, 16384]
    assert lines[-6] == "# Out of bounds values : 0 OK"
    assert re.fullmatch(r"# Avg bus bandwidth    : [\d.e+-]+ ", lines[-5])
    assert lines[-4:] == ["#", "# Collective test concluded: all_reduce_perf", "#", ""]


QNCCL = {"RING_ALLREDUCE_VERSION": "new", "BITS": "8", "bucket_size": "1024"}


@pytest.mark.parametrize("variables", [{}, QNCCL], ids=["uncompressed", "compressed"])
def test_qnccls_own_line_runs_with_and_without_its_variables(variables):
    line = "-b 4 -e 1M -d float -f 2 -n 5 -w 1 -g 8".split()
    done = subprocess.run(
        [PROGRAM.parent / "all_reduce_perf", *line], env=environment(**variables), capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# Out of bounds values : 0 OK\n" in done.stdout
    rows = rows_of(done.stdout)
    assert [row.size for row in rows] == [4 << i for i in range(19)]
    assert {p.wrong for row in rows for p in (row.out_of_place, row.in_place)} == {"0"}
    ratios = {row.ratio for row in rows[-4:]}
    assert (ratios == {"1.00"}) == (not variables), ratios


def test_only_rank_0_prints():
    result = run("perf", "all_reduce", "-b", "1K", "-e", "1K", "-n", 1, "-g", 4)
    assert result.stdout.count("# Collective test starting") == 1
    assert len(rows_of(result.stdout)) == 1
    assert result.stderr == ""


def test_bandwidths_follow_from_size_and_time(tmp_path):
    factors = dict.fromkeys(COLLECTIVES, 3 / 4) | dict.fromkeys(("broadcast", "reduce", "sendrecv"), 1)
    factors["all_reduce"] = 2 * 3 / 4
    for collective, factor in factors.items():
        document = perf_json(tmp_path, collective, "-b", "256K", "-e", "256K", "-n", 2, "-g", 4)
        for entry in document["results"]:
            assert entry["bytes"] == 262144
            assert entry["algbw_GBps"] == pytest.approx(262144 / entry["time_us"]["mean"] / 1e3)
            assert entry["busbw_GBps"] == pytest.approx(entry["algbw_GBps"] * factor)


def test_average_is_the_mean_busbw_of_all_rows_and_placements(tmp_path):
    document = perf_json(tmp_path, "all_reduce", "-b", "64K", "-e", "256K", "-f", 2, "-n", 2, "-g", 2)
    busbw = [entry["busbw_GBps"] for entry in document["results"]]
    assert len(busbw) == 6
    assert document["average_busbw_GBps"] == pytest.approx(sum(busbw) / 6)


@pytest.mark.parametrize("type_", ["float", "half", "double"])
def test_counts_of_parts_are_whole_16_bytes_per_rank(type_):
    for collective in ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"):
        sizes = [4, 4 + 777, 4 + 2 * 777]
        rows = perf(collective, "-b", 4, "-e", 2000, "-i", 777, "-d", type_, "-n", 1, "-g", 3)
        per_rank = [size // TYPES[type_] // 3 // (16 // TYPES[type_]) * (16 // TYPES[type_]) for size in sizes]
        assert [row.count for row in rows] == per_rank
        assert per_rank[0] == 0
        assert [row.size for row in rows] == [3 * count * TYPES[type_] for count in per_rank]


def test_step_bytes_cycles_roots_and_timestamps():
    rows = perf("broadcast", "-b", 100, "-e", 300, "-i", 100, "-N", 2, "-r", -1, "-n", 1, "-g", 2, "-d", "uint8")
    assert [(row.root, row.size) for row in rows] == [(r, s) for r in (0, 1) for s in (100, 200, 300)] * 2
    assert {row.redop for row in rows} == {"none"}
    for collective in COLLECTIVES:
        rows = perf(collective, "-b", 64, "-e", 64, "-r", -1, "-n", 1, "-g", 2)
        assert [row.root for row in rows] == ([0, 1] if collective in ROOTED else [-1])
        assert {row.redop for row in rows} == {"sum" if collective in REDUCTIONS else "none"}
    result = run("perf", "all_reduce", "-b", 64, "-e", 64, "-n", 1, "-S", 1)
    row = next(line for line in result.stdout.splitlines() if not line.startswith("#"))
    assert re.match(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", row[118:]), row


def test_without_check_wrong_is_not_known():
    result = run("perf", "all_reduce", "-b", 64, "-e", 64, "-n", 1, "-c", 0, "-g", 2)
    row = next(line for line in result.stdout.splitlines() if not line.startswith("#"))
    assert row[77:84] == row[109:116] == "    N/A"
    assert result.returncode == 0


@pytest.mark.parametrize("name", NCCL_TESTS)
def test_nccl_tests_names_are_the_program(name):
    command = [str(PROGRAM.parent / f"{name}_perf"), *"-b 1K -e 4K -f 2 -n 1 -w 1 -d float -g 2".split()]
    result = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert f"# Collective test starting: {name}_perf\n" in result.stdout
    assert len(rows_of(result.stdout)) == 3


# ---- results


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_right(collective, world, transport):
    rows = perf(
        collective, "-b", 4, "-e", "300K", "-f", 7, "-n", 2, "-c", 2, "-r", world - 1,
        "-g", world, "--transport", transport,
    )  # fmt: skip
    assert len(rows) == 6
    assert {row.max_error for row in rows} == {row.bound for row in rows} == {"0"}


@pytest.mark.parametrize("collective", REDUCTIONS)
@pytest.mark.parametrize("world", [2, 3])
def test_every_type_and_operation_is_right(collective, world):
    rows = perf(collective, "-b", 1000, "-e", 34000, "-i", 33000, "-d", "all", "-o", "all", "-n", 1, "-g", world)
    combinations = {(t, o) for t in TYPES for o in (OPS_OF_INTEGERS if t in INTEGERS else OPS_OF_FLOATS)}
    assert {(row.type, row.redop) for row in rows} == combinations
    assert len(rows) == 2 * len(combinations)


@pytest.mark.parametrize("collective", MOVES)
def test_every_type_is_copied_bit_by_bit(collective):
    rows = perf(collective, "-b", 1000, "-e", 34000, "-i", 33000, "-d", "all", "-n", 1, "-g", 3)
    assert {row.type for row in rows} == set(TYPES)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_barrier_has_one_row_of_no_size(transport):
    (row,) = perf("barrier", "-n", 5, "-g", 3, "--transport", transport)
    assert (row.size, row.count, row.redop, row.root) == (0, 0, "none", -1)
    assert row.out_of_place.time > 0 and row.out_of_place.busbw == 0
    result = run("perf", "barrier", "-b", "1K", "-g", 3)
    assert result.returncode == 6 and "a barrier has no size" in result.stderr


@pytest.mark.parametrize("collective", [name for name in COLLECTIVES if name != "sendrecv"])
def test_the_algorithm_can_be_chosen(collective, tmp_path):
    assert len(algorithms(collective)) >= 2
    for algorithm in algorithms(collective):
        flags = ["-b", 4, "-e", "64K", "-f", 32, "-n", 1, "-g", 3, "--algorithm", algorithm]
        document = perf_json(tmp_path, collective, *flags)
        assert {entry["algorithm"] for entry in document["results"]} == {algorithm}


def test_the_environment_chooses_the_algorithm_of_the_collectives_that_have_it(tmp_path):
    flags = ["-b", 4, "-e", "64K", "-f", 32, "-n", 1, "-g", 3]
    of = {}
    for collective, *more in (("all_reduce",), ("all_reduce", "--algorithm", "sra"), ("broadcast",)):
        results = perf_json(tmp_path, collective, *flags, *more, QCCL_ALGORITHM="ring")["results"]
        of[collective, bool(more)] = {entry["algorithm"] for entry in results}
    assert of["all_reduce", False] == {"ring"} and of["all_reduce", True] == {"sra"}
    assert of["broadcast", False] <= set(algorithms("broadcast"))


def test_an_algorithm_in_the_environment_that_there_is_not_is_an_error_that_lists_those_there_are():
    result = run("perf", "all_reduce", "-b", "4K", "-n", 1, "-g", 2, QCCL_ALGORITHM="rings")
    assert result.returncode == 6 and "QCCL_ALGORITHM=rings: use auto" in result.stderr, result.stderr
    assert all(algorithm in result.stderr for algorithm in algorithms("all_reduce")), result.stderr


def test_every_way_to_reduce_compressed_is_within_its_bound(tmp_path):
    for algorithm in algorithms("reduce"):
        document = perf_json(
            tmp_path, "reduce", "-b", "300K", "-e", "300K", "-n", 1, "-g", 3, "-r", -1, "--algorithm", algorithm,
            "--compression", "minmax:bits=8",
        )  # fmt: skip
        assert [entry["root"] for entry in document["results"]] == [0, 0, 1, 1, 2, 2]
        for entry in document["results"]:
            assert 0 < entry["max_abs_error"] <= entry["error_bound"] < 0.2, algorithm


def test_an_algorithm_that_is_only_on_request_is_taken_by_name_alone(tmp_path):
    flags = ["-b", "1M", "-e", "1M", "-n", 1, "-g", 3]
    asked = perf_json(tmp_path, "reduce_scatter", *flags, QCCL_ALGORITHM="exchange")["results"]
    assert {entry["algorithm"] for entry in asked} == {"exchange"}
    automatic = perf_json(tmp_path, "reduce_scatter", *flags)["results"]
    assert "exchange" not in {entry["algorithm"] for entry in automatic}


def test_a_rank_sends_what_the_collective_needs(tmp_path):
    """Bytes on the wire for 64 KiB, mean over 4 ranks."""
    whole = {"reduce": 3 / 4, "gather": 3 / 16, "scatter": 3 / 16, "all_to_all": 3 / 4, "sendrecv": 1}
    for collective, share in whole.items():
        flags = ["-b", "64K", "-e", "64K", "-n", 3, "-g", 4, "--transport", "tcp"]
        algorithm = [] if collective == "sendrecv" else ["--algorithm", "one_shot"]
        for entry in perf_json(tmp_path, collective, *flags, *algorithm)["results"]:
            assert entry["payload_bytes_per_rank"] == pytest.approx(65536 * share, rel=0.01), collective


HIERARCHICAL = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce"]


@pytest.mark.parametrize("collective", HIERARCHICAL)
def test_one_machine_acts_as_two_hosts(collective):
    flags = ["-b", 4, "-e", "1M", "-f", 512, "-n", 1, "-g", 4, "--algorithm", "hierarchical"]
    assert len(perf(collective, *flags, QCCL_HOSTS="2x2")) > 0
    if "reduce" in collective:
        assert len(perf(collective, *flags, "--compression", "minmax:bits=8", QCCL_HOSTS="2x2")) > 0


@pytest.mark.parametrize("collective", HIERARCHICAL)
def test_ranks_go_over_the_sites_that_they_are_told(collective):
    sites = {"QCCL_HOSTS": "6x1", "QCCL_SITES": "0-2,3+5,4"}
    flags = ["-b", 4, "-e", "1M", "-f", 512, "-n", 1, "-g", 6, "--algorithm", "hierarchical"]
    assert len(perf(collective, *flags, **sites)) > 0
    if "reduce" in collective:
        assert len(perf(collective, *flags, "--compression", "minmax:bits=8", **sites)) > 0


@pytest.mark.parametrize(
    ("sites", "fault"),
    [("0-3,4-7", "is for 8 ranks, this job has 4"), ("0-1,1-3", "rank 1 is listed twice"), ("here", "is no range")],
)
def test_sites_that_are_no_list_of_the_ranks_are_an_error(sites, fault):
    result = run("perf", "all_reduce", "-b", "1M", "-n", 1, "-g", 4, QCCL_SITES=sites)
    assert result.returncode != 0 and f"QCCL_SITES={sites}" in result.stderr and fault in result.stderr


def test_ranks_that_are_no_such_hosts_are_an_error():
    result = run("perf", "all_reduce", "-b", "1M", "-n", 1, "-g", 4, QCCL_HOSTS="2x3")
    assert result.returncode != 0 and "QCCL_HOSTS=2x3 is for 6 ranks, this job has 4" in result.stderr


# ---- compression

SPECS = {
    "minmax:bits=8,bucket_size=1024": 32 / (8 + 64 / 1024),
    "minmax:bits=4,bucket_size=128": 32 / (4 + 64 / 128),
    "minmax:bits=3,bucket_size=100": 32 / (3 + 64 / 100),
    "minmax:bits=1,bucket_size=1024": 32 / (1 + 64 / 1024),
    "cast:type=bf16": 2,
    "cast:type=fp16": 2,
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("collective", REDUCTIONS)
def test_compressed_results_are_within_the_bound_and_the_same_on_all_ranks(collective, spec, tmp_path):
    flags = ["-b", "1200K", "-e", "1200K", "-n", 1, "-c", 2, "-g", 3, "-o", "all"]
    document = perf_json(tmp_path, collective, *flags, "--compression", spec)
    for entry in document["results"]:
        if entry["op"] in ("sum", "avg", "mulsum"):
            assert entry["compression"] == spec
            assert 0 < entry["max_abs_error"] <= entry["error_bound"]
            # Chunk ends round up to whole buckets, so the ratio differs slightly from the codec's own.
            assert entry["compression_ratio"] == pytest.approx(SPECS[spec], rel=0.02)
            assert entry["wire_bytes_per_rank"] > entry["payload_bytes_per_rank"] > 0
        else:
            assert entry["compression"] == "none" and entry["max_abs_error"] == 0


@pytest.mark.parametrize("type_", ["half", "bfloat16"])
@pytest.mark.parametrize("algorithm", ["one_shot", "sra"])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_16_bit_types_are_compressed_within_the_bound(type_, algorithm, transport, tmp_path):
    document = perf_json(
        tmp_path, "all_reduce", "-b", "100K", "-e", "300K", "-f", 3, "-n", 1, "-g", 4, "-d", type_,
        "--algorithm", algorithm, "--transport", transport, "--compression", "minmax:bits=4,bucket_size=64",
    )  # fmt: skip
    for entry in document["results"]:
        assert entry["compression"] == "minmax:bits=4,bucket_size=64" and entry["algorithm"] == algorithm
        assert 0 < entry["max_abs_error"] <= entry["error_bound"]
        assert entry["compression_ratio"] == pytest.approx(16 / (4 + 64 / 64), rel=0.02)


@pytest.mark.parametrize("type_", ["float", "half", "bfloat16"])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("collective", ["all_gather", "all_to_all", "broadcast"])
def test_what_moves_compressed_is_within_the_bound_of_one_encoding(collective, transport, type_, tmp_path):
    spec = "minmax:bits=4,bucket_size=64"
    for algorithm in algorithms(collective):
        document = perf_json(
            tmp_path, collective, "-b", "4K", "-e", "400K", "-f", 10, "-n", 2, "-g", 3, "-d", type_, "-r", 1, "-c", 2,
            "--algorithm", algorithm, "--transport", transport, "--compression", spec,
        )  # fmt: skip
        for entry in document["results"]:
            assert entry["compression"] == spec and entry["algorithm"] == algorithm
            assert 0.05 < entry["max_abs_error"] <= entry["error_bound"] < 0.072
        last = document["results"][-1]
        assert last["compression_ratio"] == pytest.approx(8 * TYPES[type_] / (4 + 64 / 64), rel=0.02)


def test_of_what_moves_only_floats_are_compressed(tmp_path):
    flags = ["-b", "3K", "-e", "3K", "-n", 1, "-g", 3, "-d", "all", "--compression", "minmax:bits=8"]
    for entry in perf_json(tmp_path, "all_gather", *flags)["results"]:
        is_compressed = entry["dtype"] in ("float", "half", "bfloat16")
        assert entry["asked_compression"] == "minmax:bits=8,bucket_size=1024"
        assert entry["compression"] == (entry["asked_compression"] if is_compressed else "none")
        assert (entry["max_abs_error"] > 0) == is_compressed


def test_each_of_several_codecs_has_a_table_and_its_results(tmp_path):
    codecs = ["none", "minmax:bits=4,bucket_size=128", "cast:type=bf16", "minmax:bits=8,bucket_size=1024"]
    file = tmp_path / "results.json"
    flags = ["-b", "32K", "-e", "128K", "-f", 4, "-n", 1, "-g", 2, "--json", file]
    lists = ["--compression", f"{codecs[0]},{codecs[1]}", "--compression", "cast;minmax:bits=8"]
    result = run("perf", "all_reduce", *flags, *lists)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.findall(r"^# compression: (.*)$", result.stdout, re.M) == codecs
    tables = result.stdout.split("# compression: ")[1:]
    assert all(COLUMN_NAMES in table and COLUMN_UNITS in table for table in tables)
    assert [[row.size for row in rows_of(table[table.index("#") :])] for table in tables] == [[32768, 131072]] * 4
    assert result.stdout.count("# Out of bounds values : 0 OK\n") == 1
    document = json.loads(file.read_text())
    assert document["header"]["options"]["compressions"] == codecs
    ran = [(e["asked_compression"], e["bytes"], e["compression"]) for e in document["results"] if not e["in_place"]]
    assert ran == [(codec, size, codec if size >= 65536 else "none") for codec in codecs for size in (32768, 131072)]
    busbw = [entry["busbw_GBps"] for entry in document["results"]]
    assert document["average_busbw_GBps"] == pytest.approx(sum(busbw) / len(busbw))


def test_an_automatic_codec_compresses_where_the_link_is_slow(tmp_path):
    flags = ["-b", "1M", "-e", "1M", "-n", 3, "-w", 1, "-c", 1, "-g", 2, "--link-rate", "300mbit"]
    document = perf_json(tmp_path, "all_reduce", *flags, "--compression", "auto")
    for entry in document["results"]:
        assert entry["asked_compression"] == "auto:bits=8"
        assert entry["compression"] in ("int:bits=8,block=128", "minmax:bits=8,bucket_size=1024")
        assert 0 < entry["max_abs_error"] <= entry["error_bound"]
        assert entry["wire_bytes_per_rank"] < 0.3 * entry["bytes"]


def test_one_codec_has_nccl_tests_table_and_none_asked_for_is_the_environments(tmp_path):
    flags = ["-b", "64K", "-e", "64K", "-n", 1, "-g", 2]
    result = run("perf", "all_reduce", *flags, "--compression", "minmax:bits=4")
    assert result.returncode == 0 and "# compression" not in result.stdout
    entry = perf_json(tmp_path, "all_reduce", *flags, QCCL_COMPRESSION="cast:type=fp16")["results"][0]
    assert entry["asked_compression"] is None and entry["compression"] == "cast:type=fp16"


# ---- pictures


def test_a_picture_has_a_line_for_each_codec(tmp_path):
    flags = ["-b", "32K", "-e", "512K", "-f", 4, "-n", 1, "-g", 2, "--compression", "none,minmax:bits=4,cast"]
    for name in ("codecs.png", "it's a picture.svg"):
        perf("all_reduce", *flags, "--plot", tmp_path / name)
    assert (tmp_path / "codecs.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "it's a picture.svg").read_text()
    codecs = ("none", "minmax:bits=4,bucket_size=1024", "cast:type=bf16")
    for words in (*codecs, "32 KiB", "512 KiB", "all_reduce, 2 ranks"):
        assert f"<!-- {words} -->" in drawn, words


def test_small_tensors_and_other_types_stay_uncompressed(tmp_path):
    flags = ["-b", "32K", "-e", "64K", "-f", 2, "-n", 1, "-g", 2, "--compression", "minmax:bits=4"]
    document = perf_json(tmp_path, "all_reduce", *flags)
    by_size = {entry["bytes"]: entry["compression"] for entry in document["results"]}
    assert by_size == {32768: "none", 65536: "minmax:bits=4,bucket_size=1024"}
    for entry in perf_json(tmp_path, "all_reduce", *flags, "-d", "double")["results"]:
        assert entry["compression"] == "none" and entry["compression_ratio"] == 1


def test_qnccls_variables_turn_compression_on(tmp_path):
    flags = ["all_reduce", "-b", "64K", "-e", "64K", "-n", 1, "-g", 2]
    variables = {"BITS": "8", "bucket_size": "512"}
    on = perf_json(tmp_path, *flags, RING_ALLREDUCE_VERSION="new", **variables)
    assert on["results"][0]["compression"] == "minmax:bits=8,bucket_size=512"
    off = perf_json(tmp_path, *flags, **variables)
    assert off["results"][0]["compression"] == "none"


# ---- JSON


def test_json_has_the_documented_fields(tmp_path):
    document = perf_json(
        tmp_path, "all_reduce", "-b", "4", "-e", "16", "-f", 4, "-n", 3, "-g", 2, "--transport", "tcp",
        QCCL_TEST_SECRET="do not tell",
    )  # fmt: skip
    header = document["header"]
    assert header["ranks"] == 2 and header["transport"] == "tcp" and header["host"] == socket.gethostname()
    assert header["version"] == run("version").stdout.split()[1]
    assert header["options"]["iterations"] == 3
    assert "do not tell" not in json.dumps(document)
    assert [(entry["bytes"], entry["in_place"]) for entry in document["results"]] == [
        (4, False), (4, True), (16, False), (16, True)
    ]  # fmt: skip
    for entry in document["results"]:
        types = {
            "collective": str, "bytes": int, "count": int, "dtype": str, "op": str, "in_place": bool, "algorithm": str,
            "compression": str, "time_us": dict, "algbw_GBps": float, "busbw_GBps": float,
            "wire_bytes_per_rank": float, "max_abs_error": float, "error_bound": float, "wrong": int,
        }  # fmt: skip
        for field, kind in types.items():
            assert isinstance(entry[field], kind), field
        times = entry["time_us"]
        assert 0 < times["min"] <= times["median"] <= times["max"]
        assert times["min"] <= times["mean"] <= times["max"]


# ---- flags


def test_flags_of_nccl_tests_with_their_defaults_are_taken():
    perf("all_reduce", "-b", 64, "-e", 64, "-n", 1, *"-t 1 -m 1 -p 1 -z 1 -y 0 -G 0 -C 0 -a 3 -R 0 -u 0 -T 60".split())


def test_a_missing_or_unknown_collective_is_6_and_lists_them():
    for arguments in ([], ["all_to_none"]):
        result = run("perf", *arguments)
        assert result.returncode == 6 and set(COLLECTIVES) <= set(result.stderr.split())


# ---- launchers


def test_a_link_rate_paces_the_ranks_and_auto_is_a_transport():
    flags = ["-b", "1K", "-e", "1K", "-n", 1, "-g", 2]
    for flag, words in ((["--link-rate", "1gbit"], "paced at 1gbit"), (["--transport", "auto"], "shm to rank 1")):
        result = run("perf", "all_reduce", *flags, *flag)
        assert result.returncode == 0 and words in result.stdout, result.stderr


def test_perf_runs_under_a_launcher():
    result = run("run", "-n", 3, "--", PROGRAM, "perf", "all_reduce", "-b", "1K", "-e", "1K", "-n", 1)
    assert result.returncode == 0, result.stderr
    assert len(rows_of(result.stdout)) == 1 and result.stdout.count("#  Rank ") == 3


def test_other_ranks_than_the_launchers_are_6():
    result = run("run", "-n", 2, "--", PROGRAM, "perf", "all_reduce", "-b", "1K", "-e", "1K", "-g", 3)
    assert result.returncode == 6 and "-g 3" in result.stderr
