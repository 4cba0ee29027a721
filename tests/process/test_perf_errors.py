"""`qccl perf`: the arguments it rejects, its messages, and its exit codes."""

import re
import shutil
import socket
import subprocess

import pytest
from program import PROGRAM, environment, run


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-d", "complex"], "int8 uint8 int16 uint16 int32 uint32 int64 uint64 half float double bfloat16 bool all"),
        (["-o", "median"], "sum prod min max avg mulsum band bor bxor all"),
        (["-o", "avg", "-d", "int32"], "avg is for half, float, double and bfloat16"),
        (["-o", "mulsum", "-d", "uint64"], "mulsum is for half, float, double and bfloat16"),
        (["-o", "bxor", "-d", "float"], "bxor is for integers and bool, not for float"),
        (["--algorithm", "star"], "auto one_shot sra ring tree"),
        (["--transport", "ib"], "auto,shm,tcp"),
        (["--compression", "minmax:bits=99"], "bits=99"),
        (["--compression", "none,zip:level=3"], "zip"),
        (["-t", "2"], "use -g"),
        (["-G", "1"], "CUDA graphs"),
        (["-m", "4"], "not aggregated"),
        (["-n", "0"], "--iters"),
        (["-T", "nan"], "nan is no number"),
        (["--frobnicate"], "--frobnicate"),
        (["-r", "2", "-g", "2"], "no rank of 2"),
        (["--link-rate", "banana"], "1gbit"),
    ],
)
def test_wrong_flags_are_6_and_say_what_is_allowed(flags, words):
    result = run("perf", "all_reduce", *flags)
    assert result.returncode == 6
    assert words in result.stderr and result.stdout == ""


def test_flags_that_would_change_nothing_are_6():
    for collective, flags in (
        ("all_gather", ["--algorithm", "sra"]),
        ("reduce_scatter", ["--algorithm", "tree"]),
        ("gather", ["--compression", "minmax:bits=4"]),
        ("scatter", ["--compression", "none,cast"]),
        ("sendrecv", ["--compression", "minmax:bits=4"]),
        ("broadcast", ["--compression", "minmax:bits=4", "-d", "int32"]),
        ("sendrecv", ["--algorithm", "one_shot"]),
        ("gather", ["--algorithm", "ring"]),
    ):
        result = run("perf", collective, *flags)
        assert result.returncode == 6 and flags[0] in result.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-b", "8", "-e", "4"], "invalid sizes for 'minbytes' and 'maxbytes': 8 > 4"),
        (["-b", "many"], "invalid size 'many' specified for 'minbytes'"),
        (["-e", "1T"], "invalid size '1T' specified for 'maxbytes'"),
        (["-b", "0", "-e", "8", "-f", "2"], "step of 0"),
    ],
)
def test_wrong_sizes_are_255(flags, words):
    result = run("perf", "all_reduce", *flags)
    assert result.returncode == 255 and words in result.stderr


def test_more_memory_than_there_is_is_refused():
    result = run("perf", "all_reduce", "-b", "4", "-e", "5000G", "-f", 2, "-g", 2)
    assert result.returncode == 1 and "lower -e" in result.stderr


@pytest.mark.parametrize(("least", "code", "word"), [("1e9", 7, "FAILED"), ("1e-9", 0, "OK")])
def test_a_bandwidth_below_the_asked_for_is_7(least, code, word):
    result = run("perf", "all_reduce", "-b", "64K", "-e", "64K", "-n", 1, "-g", 2, NCCL_TESTS_MIN_BW=least)
    assert result.returncode == code
    assert re.search(rf"^# Avg bus bandwidth    : \S+ {word}$", result.stdout, re.M)


def test_an_operation_that_times_out_is_4():
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        port = str(reserved.getsockname()[1])
        result = run("perf", "all_reduce", **place, MASTER_PORT=port, QCCL_INIT_TIMEOUT="0.3")
    assert result.returncode == 4, result.stderr
    assert "Test failure" in result.stderr


# ---- pictures and JSON


def test_without_matplotlib_a_picture_is_refused_before_anything_runs(tmp_path):
    # Run outside the checkout and its .venv, where at most PATH has a Python.
    program = tmp_path / "qccl"
    shutil.copy(PROGRAM, program)
    plain = tmp_path / "python3"
    plain.write_text("#!/bin/sh\nexit 1\n")
    plain.chmod(0o755)
    command = [str(program), *"perf all_reduce -b 4 -e 4 -n 1 --plot".split(), str(tmp_path / "x.png")]
    for path in (str(tmp_path), str(tmp_path / "nothing")):
        result = subprocess.run(command, env=environment(PATH=path), capture_output=True, text=True, timeout=60)
        assert result.returncode == 1 and result.stdout == ""
        assert "needs a Python with matplotlib" in result.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [("no/picture.png", "there is no directory"), ("picture.xyz", ".png, .svg or .pdf"), (".", "is a directory")],
)
def test_a_picture_that_cannot_have_its_name_is_refused_before_anything_runs(tmp_path, name, words):
    result = run("perf", "all_reduce", "-b", "64", "-e", "64", "-n", 1, "-g", 2, "--plot", tmp_path / name)
    assert result.returncode == 6 and result.stdout == "", result
    assert words in result.stderr and "matplotlib" not in result.stderr


def test_a_picture_that_cannot_be_written_is_an_error():
    result = run("perf", "all_reduce", "-b", "64", "-e", "64", "-n", 1, "--plot", "/proc/picture.png")
    assert result.returncode == 1 and "can't draw /proc/picture.png" in result.stderr
    assert "matplotlib" not in result.stderr and "Traceback" not in result.stderr


def test_a_json_file_that_cannot_be_written_is_an_error(tmp_path):
    result = run("perf", "all_reduce", "-b", 4, "-e", 4, "-n", 1, "--json", tmp_path / "no" / "such" / "folder.json")
    assert result.returncode == 1 and "can't write" in result.stderr
