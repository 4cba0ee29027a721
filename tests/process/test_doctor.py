"""`qccl doctor` end to end: its output if nothing is wrong, and for each possible fault."""

import ctypes
import re
import sys

import pytest
from job import free_port
from program import PROGRAM, ROOT, needs_devices, run


def lines_of(text: str) -> dict[str, str]:
    """{topic: text}; the last text of a repeated topic."""
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in text.splitlines() if re.search(r"\S\s{2,}\S", line))


def doctor(*flags: object, ranks: int = 1, **variables: str):
    if ranks == 1:
        return run("doctor", *flags, **variables)
    return run("run", "-n", ranks, "--", PROGRAM, "doctor", *flags, **variables)


def test_alone_it_says_what_is_here_and_that_nothing_is_wrong():
    done = doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    said = lines_of(done.stdout)
    for topic in ("version", "rank", "rendezvous", "host", "cores", "SIMD", "interfaces", "shared memory",
                  "locked memory", "open files", "congestion control"):  # fmt: skip
        assert topic in said
    assert said["rank"] == "0 of 1, from a single process" or said["rank"].startswith("0 of 1")
    assert "BROKEN" not in done.stdout


FAKE_CUDA = str(PROGRAM.parent / "fake_cuda")


@needs_devices
def test_devices_are_counted_and_described():
    said = lines_of(doctor(LD_LIBRARY_PATH=FAKE_CUDA).stdout)
    assert said["devices"] == "2, driver 12.0 (docs/gpu.md)"
    built = (PROGRAM.parent / "device_kernels" / "cubins.fatbin").exists()
    kernels = "no kernels built in"
    if built:
        kernels = "kernels built in as PTX, which the driver translates at their first use"
    for index in range(2):
        of_device = f"Fake device {index}, compute capability 9.0, 4 multiprocessors, 16384 MiB; {kernels}"
        assert said[f"device {index}"] == of_device


@needs_devices
def test_it_says_whether_streams_can_wait_and_why_not():
    def order(**variables):
        done = doctor(LD_LIBRARY_PATH=FAKE_CUDA, **variables)
        assert done.returncode == 0
        return lines_of(done.stdout)["device order"]

    tried = "gate: streams of device 0 can wait for calls: tried; "
    assert order() == f"{tried}the torch backend waits on the host by default (docs/gpu.md)"
    chosen = order(QCCL_STREAM_ORDER="gate")
    assert chosen == f"{tried}torch's wait too, because QCCL_STREAM_ORDER says so (docs/gpu.md)"
    assert order(QCCL_STREAM_ORDER="host") == "host, because QCCL_STREAM_ORDER says so"
    refused = order(FAKE_CUDA_FAIL="cuStreamWaitValue32=801")
    assert refused == "host: streams of device 0 can't wait for calls: cuStreamWaitValue32: error 801"


@needs_devices
def test_each_rank_tries_whether_its_device_can_use_shared_memory():
    usable = "can use shared memory where it lies: tried (cuMemHostRegister)"
    assert lines_of(doctor(LD_LIBRARY_PATH=FAKE_CUDA).stdout)["device transfers"] == f"device 0 {usable}"
    turned = f"LOCAL_RANK=$((1 - RANK)) exec {PROGRAM} doctor"
    second = run("run", "-n", 2, "--", "sh", "-c", turned, LD_LIBRARY_PATH=FAKE_CUDA)
    assert lines_of(second.stdout)["device transfers"] == f"device 1 {usable}"


@needs_devices
def test_a_device_that_cannot_use_shared_memory_is_no_fault():
    done = doctor(LD_LIBRARY_PATH=FAKE_CUDA, FAKE_CUDA_FAIL="cuMemHostRegister=801")
    said = lines_of(done.stdout)["device transfers"]
    assert done.returncode == 0
    assert said == "device 0 can't use shared memory where it lies: device 0: cuMemHostRegister: error 801"


@needs_devices
def test_kernels_for_devices_are_those_that_the_build_has():
    built = (PROGRAM.parent / "device_kernels" / "cubins.fatbin").exists()
    said = lines_of(doctor().stdout)["device kernels"]
    assert said.startswith("PTX, and machine code for sm_" if built else "none: built without CUDA's nvcc")


@needs_devices
def test_kernels_that_a_variable_chooses_are_named_with_it(tmp_path):
    off = lines_of(doctor(QCCL_DEVICE_KERNELS="off").stdout)["device kernels"]
    assert off.startswith("not used, because QCCL_DEVICE_KERNELS is off; built in: ")
    file = tmp_path / "kernels.ptx"
    missing = doctor(QCCL_DEVICE_KERNELS=str(file))
    warning = f"WARNING device kernels: none: QCCL_DEVICE_KERNELS names {file}, which can't be read\n    fix: "
    assert missing.returncode == 0 and warning in missing.stdout
    file.touch()
    named = lines_of(doctor(QCCL_DEVICE_KERNELS=str(file)).stdout)["device kernels"]
    assert named == f"those of {file}, which QCCL_DEVICE_KERNELS names (docs/gpu.md)"


@needs_devices
def test_a_machine_without_a_gpu_says_so_in_the_loaders_words():
    try:
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a GPU's driver")
    except OSError:
        said = lines_of(doctor().stdout)
        assert said["devices"].startswith("none: device memory needs NVIDIA's driver: libcuda.so.1: cannot open shared")


def test_rank_0_prints_who_reaches_whom_by_what():
    done = doctor(ranks=2)
    assert done.returncode == 0, done.stdout + done.stderr
    reached = [line for line in done.stdout.splitlines() if line.startswith("reached")]
    assert [re.search(r"rank (\d) of 2", line)[1] for line in reached] == ["0", "1"]
    assert "shm to rank 1" in reached[0] and "shm to rank 0" in reached[1]
    assert done.stdout.count("version") == 1
    assert "tcp to rank 1" in doctor(ranks=2, QCCL_TRANSPORT="tcp").stdout


def test_choices_follow_size_and_compression():
    said = lines_of(doctor(ranks=2, QCCL_COMPRESSION="minmax:bits=4").stdout)
    small, large = said["all_reduce 8"], said["all_reduce 67108864"]
    assert small.startswith("through cells in shared memory") and "too small to compress" in small
    assert large.startswith("sra, ") and "minmax:bits=4" in large and "as QCCL_COMPRESSION asks" in large
    assert "compress" not in lines_of(doctor(ranks=2).stdout)["all_reduce 67108864"]


def test_choices_come_with_predictions_and_follow_hosts_and_profile(tmp_path):
    slow = tmp_path / "slow.profile"
    slow.write_text("machine a slow wire\nwire.host_Gbps 0.1\n")
    done = doctor(ranks=4, QCCL_HOSTS="2x2", QCCL_PROFILE=str(slow))
    assert done.returncode == 0, done.stdout + done.stderr
    said = lines_of(done.stdout)
    assert said["profile"] == f"{slow}: measured on a slow wire; links of 0.1 Gbit/s, 30 us away"
    large = said["all_reduce 67108864"]
    why = r"saves \d+ % of the time of sra \(one_shot .* s, sra .* s"
    assert re.match(r"hierarchical, 5\.[67]\d* s: " + why, large), large
    assert lines_of(doctor(ranks=4).stdout)["all_reduce 67108864"].startswith("sra, ")


def test_rank_0s_profile_is_everybodys(tmp_path):
    slow = tmp_path / "slow.profile"
    slow.write_text("wire.host_Gbps 0.001\n")
    command = f"[ $RANK = 1 ] && export QCCL_PROFILE={slow}; exec {PROGRAM} doctor"
    done = run("run", "-n", 4, "--", "sh", "-c", command, QCCL_HOSTS="2x2", QCCL_LOG="warning")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 1: QCCL_PROFILE, QCCL_TRANSPORT, QCCL_LINK_RATE or QCCL_SITES differs from rank 0's" in done.stderr
    assert "rank 2: QCCL_PROFILE" not in done.stderr
    assert re.match(r"hierarchical, \d+\.?\d* ms", lines_of(done.stdout)["all_reduce 67108864"])


def test_measured_profile_is_written_and_read(tmp_path):
    file = tmp_path / "machine.profile"
    # Rank 1 waits longer than the timeout while rank 0 measures the machine, with slow kernels.
    done = doctor("--measure", file, "--timeout", 2, ranks=2, QCCL_HOSTS="2x1", QCCL_SIMD="sse4")
    assert done.returncode == 0, done.stdout + done.stderr
    measured = dict(line.split(" ", 1) for line in file.read_text().splitlines() if not line.startswith("codec_GBps"))
    for key in ("shm.latency_us", "loopback.frame_us", "wire.latency_us", "wire.host_Gbps", "copy_GBps", "add_GBps"):
        assert float(measured[key]) > 0, key
    assert "codec_GBps minmax:bits=4 " in file.read_text()
    assert lines_of(doctor(QCCL_PROFILE=str(file)).stdout)["profile"].startswith(f"{file}: measured on ")


@pytest.mark.parametrize(
    ("variables", "complaint", "remedy"),
    [
        ({"RANK": "0"}, "BROKEN  rank: ", "docs/launchers.md"),
        ({"QCCL_COMPRESSION": "zip"}, "BROKEN  settings: QCCL_COMPRESSION", "correct the variable"),
        ({"QCCL_TIMEOUT": "soon"}, "BROKEN  settings: QCCL_TIMEOUT=soon", "correct the variable"),
        ({"QCCL_PROFILE": "/no/such"}, "BROKEN  profile: QCCL_PROFILE=/no/such: can't be read", "correct the variable"),
    ],
)
def test_wrong_settings_are_broken_with_a_remedy(variables, complaint, remedy):
    done = doctor(**variables)
    assert done.returncode == 1
    assert complaint in done.stdout
    assert remedy in done.stdout


def test_an_interface_filter_that_matches_nothing_is_broken():
    done = doctor(ranks=2, QCCL_SOCKET_IFNAME="=nosuch0")
    assert done.returncode == 1
    assert 'no interface that is up passes the filter "=nosuch0"' in done.stdout
    assert "QCCL_SOCKET_IFNAME" in done.stdout.partition("fix:")[2]


def test_alone_it_says_which_interfaces_a_filter_passes():
    assert lines_of(doctor(QCCL_SOCKET_IFNAME="=lo").stdout)["interfaces"].startswith("lo 127.0.0.1")
    assert doctor(NCCL_SOCKET_IFNAME="lo").stdout.count('(pass "lo" of NCCL_SOCKET_IFNAME)') == 1
    done = doctor(QCCL_SOCKET_IFNAME="=nosuch0")
    assert done.returncode == 0
    assert 'WARNING interfaces: no interface that is up passes the filter "=nosuch0"' in done.stdout


def test_a_master_that_does_not_exist_is_broken():
    done = doctor(RANK="0", WORLD_SIZE="2", MASTER_ADDR="no-such-host.invalid", MASTER_PORT="29500")
    assert done.returncode == 1
    assert "BROKEN  route: " in done.stdout and "MASTER_ADDR" in done.stdout


def test_ranks_that_do_not_come_are_named():
    done = doctor("--timeout", 0.5, RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    assert done.returncode == 1
    assert re.search(r"BROKEN  the job: .*rank 1", done.stdout)


def test_the_page_of_options_has_every_instruction_set_of_this_machine():
    page = (ROOT / "docs" / "options.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `QCCL_SIMD`"))
    for name in lines_of(doctor().stdout)["SIMD"].split(" of ")[1].split(", "):
        assert f"`{name}`" in row, name


def test_an_instruction_set_that_is_not_there_is_a_warning_of_every_rank():
    done = doctor(ranks=2, QCCL_SIMD="abacus")
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in (0, 1):
        assert f"WARNING rank {rank}: SIMD: QCCL_SIMD=abacus" in done.stdout


def test_too_few_descriptors_are_broken():
    command = f"ulimit -n 40; exec {PROGRAM} doctor"
    done = run("run", "-n", 16, "--", "sh", "-c", command)
    assert done.returncode == 1
    assert "BROKEN  open files: 40 may be open" in done.stdout
    assert "ulimit -n" in done.stdout.partition("fix:")[2]


@pytest.mark.parametrize(
    ("size", "consequence"),
    [
        (64 << 20, "limited to 64 MiB: all shared buffers (allocate()) of a rank together have no more"),
        (4 << 20, "limited to 4 MiB: ranks of one host need files of 9 MiB to share memory, and use TCP without"),
    ],
)
def test_a_limit_on_file_sizes_is_a_warning_with_its_consequence(size, consequence):
    limited = f"import os, resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size})); "
    limited += f"os.execv({str(PROGRAM)!r}, ['qccl', 'doctor'])"
    for ranks in (1, 2):
        done = run("run", "-n", ranks, "--", sys.executable, "-c", limited)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"file size: {consequence}" in done.stdout
        assert "ulimit -f unlimited" in done.stdout.partition("fix:")[2]
        reached = "tcp to rank 1" if size < 9 << 20 else "shm to rank 1"
        assert ranks == 1 or reached in done.stdout


def test_help_has_examples_and_unknown_flags_are_refused():
    assert "qccl run -n 4 -- qccl doctor" in run("doctor", "--help").stdout
    assert run("doctor", "--cure").returncode == 2
