"""libqccl_nccl.so as a file: its symbols and its name, and what variables make of it."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / "libqccl_nccl.so"
PROGRAM = ROOT / "build" / "tests" / "nccl" / "nccl_c_program"
LIMIT_SECONDS = 60

# What libtorch_cuda of torch 2.11, 2.13 and 2.15 imports, with ncclCommCuDevice and ncclScatter for other programs.
SERVED = """AllGather AllReduce AlltoAll Bcast Broadcast CommAbort CommCount CommCuDevice CommDeregister CommDestroy
CommFinalize CommGetAsyncError CommGetUniqueId CommGrow CommInitAll CommInitRank CommInitRankConfig
CommInitRankScalable CommRegister CommRevoke CommShrink CommSplit CommUserRank Gather GetErrorString GetLastError
GetUniqueId GetVersion GroupEnd GroupStart MemAlloc MemFree Recv RedOpCreatePreMulSum RedOpDestroy Reduce
ReduceScatter Scatter Send""".split()
REFUSED = """CommMemStats CommResume CommSuspend CommWindowDeregister CommWindowRegister DevCommCreate DevCommDestroy
GetLsaMultimemDevicePointer GetPeerDevicePointer GroupSimulateEnd PutSignal Signal WaitSignal WinGetUserPtr""".split()


def run(*command, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run(
        [str(part) for part in command], env=environment, text=True, capture_output=True, timeout=LIMIT_SECONDS
    )


def test_the_library_exports_nccls_functions_and_nothing_else():
    listed = run("nm", "--dynamic", "--defined-only", "--format=posix", LIBRARY).stdout
    symbols = sorted(line.split()[0] for line in listed.splitlines())
    assert symbols == sorted("nccl" + name for name in SERVED + REFUSED)


def test_the_loader_knows_it_as_nccl():
    dynamic = run("readelf", "--dynamic", "--wide", LIBRARY).stdout
    assert re.findall(r"SONAME.*\[(.*)\]", dynamic) == ["libnccl.so.2"]
    assert not re.search(r"NEEDED.*lib(cu|nv)", dynamic)
    assert (ROOT / "build" / "nccl" / "libnccl.so.2").resolve() == LIBRARY.resolve()


def test_the_page_names_every_function():
    page = (ROOT / "docs" / "nccl.md").read_text()
    assert [name for name in SERVED + REFUSED if f"`{name}`" not in page] == []


def test_nccl_debug_shows_a_line_once_and_only_if_asked():
    assert run(PROGRAM).stdout == ""
    shown = run(PROGRAM, NCCL_DEBUG="VERSION", QCCL_NCCL_VERSION="2.30.7")
    assert re.fullmatch(r"NCCL version 2\.30\.7, served by QCCL \d+\.\d+\.\d+\n", shown.stdout)
    assert shown.returncode == 0


def test_a_version_that_is_none_is_refused_by_its_name():
    refused = run(PROGRAM, NCCL_DEBUG="VERSION", QCCL_NCCL_VERSION="2.30")
    assert refused.returncode == 1
    assert "QCCL_NCCL_VERSION=2.30" in refused.stderr


@pytest.mark.parametrize(
    ("variables", "codec"),
    [
        ({}, "none"),
        ({"BITS": "4"}, "none"),
        ({"QCCL_COMPRESSION": "minmax:bits=4"}, "minmax:bits=4,bucket_size=1024"),
        ({"RING_ALLREDUCE_VERSION": "new", "BITS": "5", "bucket_size": "512"}, "minmax:bits=5,bucket_size=512"),
    ],
)
def test_sums_are_compressed_if_and_as_the_variables_say(variables, codec, tmp_path):
    prefix = str(tmp_path / "log")
    ended = run(PROGRAM, QCCL_LOG_FILE=prefix, QCCL_COMPRESSION_MIN_BYTES="1", **variables)
    assert ended.returncode in (0, 1), ended.stderr  # compressed sums are not exact
    log = json.loads(Path(f"{prefix}0.json").read_text())
    codecs = [event["args"]["compression"] for event in log["traceEvents"] if event["name"] == "all_reduce"]
    assert codecs == [codec]


@pytest.mark.parametrize(
    "wrong",
    ["MASTER_ADDR=gone.invalid", "MASTER_PORT=tcp://10.0.0.1:80", "LOCAL_RANK=-1", "LOCAL_RANK=7",
     "LOCAL_WORLD_SIZE=8", "TORCHELASTIC_RESTART_COUNT=x", "WORLD_SIZE=1", "SLURM_PROCID=9"],
)  # fmt: skip
def test_variables_of_a_launch_do_not_override_the_ranks_of_a_communicator(wrong):
    name, value = wrong.split("=")
    ended = run(PROGRAM, **{"RANK": "1", "WORLD_SIZE": "4"} | {name: value})
    assert ended.returncode == 0, ended.stdout + ended.stderr
