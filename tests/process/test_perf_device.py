"""`qccl perf --device cuda`, with the fake driver (tests/support/fake_cuda) as the loader's libcuda.so.1."""

import ctypes
import json
import re
import subprocess

import pytest
from program import PROGRAM, environment, needs_devices, run

pytestmark = needs_devices

FAKE = {"LD_LIBRARY_PATH": str(PROGRAM.parent / "fake_cuda")}
SIZES = ["-b", "1K", "-e", "256K", "-f", "16", "-n", "2", "-w", "1"]


def results(tmp_path, *arguments: object, **variables: str) -> dict:
    file, misuses = tmp_path / "results.json", tmp_path / "misuses"
    noted = {"FAKE_CUDA_MISUSES": str(misuses)}
    done = run("perf", *arguments, "--device", "cuda", "--json", file, **FAKE, **noted, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not misuses.exists(), misuses.read_text()
    return json.loads(file.read_text())


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    "collective",
    [
        *("all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce"),
        *("gather", "scatter", "all_to_all", "sendrecv"),
    ],
)
def test_every_collective_is_right_on_a_gpus_memory(collective, ranks, tmp_path):
    document = results(tmp_path, collective, *SIZES, "-g", ranks)
    assert document["header"]["device"] == "cuda" and document["out_of_bounds"] == {"count": 0, "ok": True}
    assert [entry["wrong"] for entry in document["results"]] == [0] * 6


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_sums_are_compressed_as_on_the_host(transport, tmp_path):
    flags = ["all_reduce", "-b", "64K", "-e", "256K", "-f", "4", "-n", "1", "-g", "3", "--transport", transport]
    for entry in results(tmp_path, *flags, "--compression", "none,minmax:bits=4,cast")["results"]:
        assert entry["wrong"] == 0 and entry["same_bits"]
        assert entry["compression"] == entry["asked_compression"]
        assert (entry["max_abs_error"] > 0) == (entry["compression"] != "none")


def test_types_and_operations_are_those_of_the_host(tmp_path):
    document = results(tmp_path, "all_reduce", "-b", "1K", "-e", "1K", "-n", 1, "-g", 2, "-d", "all", "-o", "all")
    assert len({(entry["dtype"], entry["op"]) for entry in document["results"]}) > 60
    assert document["out_of_bounds"]["ok"]


def test_ranks_take_the_gpus_in_turn_and_the_table_is_the_hosts():
    done = run("perf", "all_reduce", *SIZES, "-g", 3, "--device", "cuda", **FAKE)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"device +(\d+) \[0000:00:00\] (.*)", done.stdout) == [
        ("0", "Fake device 0"), ("1", "Fake device 1"), ("0", "Fake device 0")
    ]  # fmt: skip
    shape = re.compile(r"\d+(\.\d+)?(e[+-]\d+)?")
    host = run("perf", "all_reduce", *SIZES, "-g", 3)

    def outline(text: str) -> list[list[str]]:
        return [shape.sub("0", line).split() for line in text.splitlines() if "Rank" not in line]

    assert outline(done.stdout) == outline(host.stdout)


def test_the_program_names_of_nccl_tests_take_the_flag():
    command = [str(PROGRAM.parent / "all_reduce_perf"), "-b", "4", "-e", "64", "-f", "4", "-g", "2", "--device", "cuda"]
    done = subprocess.run(command, env=environment(**FAKE), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "# Out of bounds values : 0 OK" in done.stdout, done.stderr


def test_ranks_of_a_launcher_take_a_gpu_each():
    command = [PROGRAM, "perf", "all_gather", *SIZES, "--device", "cuda"]
    done = run("run", "-n", 2, "--", *command, **FAKE)
    assert done.returncode == 0 and done.stdout.count("Fake device") == 2, done.stderr


def test_other_devices_are_6_and_listed():
    done = run("perf", "all_reduce", "--device", "tpu")
    assert done.returncode == 6 and "cpu cuda" in done.stderr


def test_buffers_that_the_gpu_has_no_memory_for_are_refused_with_advice():
    # The fake device has 16 GiB. Only the addresses are taken before that.
    done = run("perf", "barrier", "-g", 1, "--device", "cuda", **FAKE)
    assert done.returncode == 0, done.stderr
    done = run("perf", "all_reduce", "-b", "4", "-e", "17G", "-f", 2, "--device", "cuda", **FAKE)
    assert done.returncode in (1, 3) and "lower -e" in done.stderr


def test_without_a_driver_it_is_6_once_in_the_loaders_words():
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a GPU's driver")
    except OSError:
        done = run("perf", "all_reduce", *SIZES, "-g", 2, "--device", "cuda")
        assert done.returncode == 6 and done.stdout == ""
        words = "--device cuda: device memory needs NVIDIA's driver: libcuda.so.1: cannot open shared object file"
        remedy = "; install driver 525 or later, or leave --device out to measure host memory\n"
        assert done.stderr.count(words) == 1 and done.stderr.endswith(remedy)


def test_a_driver_without_a_gpu_is_6_and_says_where_to_look():
    done = run("perf", "all_reduce", *SIZES, "--device", "cuda", **FAKE, FAKE_CUDA_FAIL="cuInit=100")
    assert done.returncode == 6 and done.stdout == ""
    assert "no CUDA-capable device is detected); see whether nvidia-smi lists a GPU, or leave" in done.stderr
