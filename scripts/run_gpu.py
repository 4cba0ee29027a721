#!/usr/bin/env python3
"""Everything that needs a GPU, on a machine with one, in less than ten minutes.

  scripts/run_gpu.py                       builds, runs all parts, writes build/bench/gpu.json
  scripts/run_gpu.py --parts kernels       one part
  scripts/run_gpu.py --venv .venv-gpu      with the torch of that virtual environment (docs/gpu.md makes one)
  scripts/run_gpu.py --first-contact       what scripts/pack_gpu.sh has packed, and installs nothing (first_contact.py)

Parts (docs/gpu-check.md says what they measure):
  kernels     the slice kernels against the host's, byte by byte; their speed; copies, launches, registration
  ranks       2, 4 and 8 ranks as threads: bits equal to the host's, and speed against the link's bound
  processes   2 and 4 processes with qccl perf --device cuda, over shared memory and TCP
  gates       that streams which wait for calls go on, whatever happens meanwhile, and that processes end
  tests       tests/gpu, the kernels under compute-sanitizer, and the torch device tests on "cuda"
  training    steps of the demo's model with DDP and FSDP2, where the host waits and where streams do
  nccl        torch's nccl backend on QCCL's interface of NCCL: losses beside the qccl backend's

Compares with the last file. Exit 0; 1 if bytes differ or a part failed; 3 without a driver or a GPU.
"""

import argparse
import ctypes
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from bench.gpu import figures  # noqa: E402
from bench.gpu.cases import (  # noqa: E402
    COMPRESSIONS,
    CONNECTIONS,
    GATE_CASES,
    ORDERS,
    SANITIZED_SIZES,
    SANITIZER_FOUND,
    SANITIZERS,
    TORCH_TESTS,
    losses_that_differ,
)

import first_contact  # noqa: E402

NO_GPU = 3
FIRST_CONTACT = "--first-contact"
BENCH = ROOT / "build" / "bench"
PROGRAM = ROOT / "build" / "qccl"
NCCL = ROOT / "build" / "libqccl_nccl.so"
GPU_TESTS = ROOT / "build" / "tests" / "gpu_tests"
TRAINING = ROOT / "bench" / "gpu" / "training.py"
NCCL_TRAINING = ROOT / "bench" / "gpu" / "nccl_training.py"
TARGETS = ["qccl_program", "qccl_nccl", "gpu_gates", "gpu_kernels", "gpu_ranks", "gpu_tests"]
PART_LIMIT_SECONDS = 420
NCCL_STEPS = 10


class Skipped(Exception):
    """A part that can't run here; the message says why."""


class NoGpu(Exception):
    """There is no GPU; the message says what the loader or the driver said."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(FIRST_CONTACT, action="store_true", help="with its own options: add --help")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, default=BENCH / "gpu.json", help="default build/bench/gpu.json")
    venv = os.environ.get("QCCL_VENV", ROOT / ".venv")
    parser.add_argument("--venv", type=Path, default=venv, help="environment whose torch has CUDA (QCCL_VENV, .venv)")
    parser.add_argument("--no-build", action="store_true", help="take the programs as they are")
    sizes = parser.add_argument_group("sizes, for a short look")
    sizes.add_argument("--elements", type=int, default=100_000_000, help="of each format of the kernels")
    sizes.add_argument("--slice", type=int, default=128 * 1024, help="elements of a slice")
    sizes.add_argument("--copy-bytes", type=int, default=256 << 20, help="of the copies")
    sizes.add_argument("--samples", type=int, default=5, help="of each time; 0: one run each")
    sizes.add_argument("--worlds", type=int, nargs="+", default=[2, 4, 8], help="ranks as threads")
    sizes.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    sizes.add_argument("--least", type=int, default=64 << 10, help="bytes of the smallest call")
    sizes.add_argument("--largest", type=int, default=1 << 30, help="bytes of the largest call of threads")
    sizes.add_argument("--largest-of-processes", type=int, default=64 << 20)
    sizes.add_argument("--iterations", type=int, default=20)
    sizes.add_argument("--seconds", type=float, default=150, help="for the ranks: larger sizes are then left out")
    sizes.add_argument("--gate-seconds", type=float, default=30, help="after which a case of the gates counts as hung")
    sizes.add_argument("--steps", type=int, default=20, help="of training")
    parser.add_argument("--plant", choices=["kernels", "ranks", "gates"],
                        help="change a byte there, or hang, to see it found")  # fmt: skip
    arguments = parser.parse_args()
    arguments.venv = arguments.venv.absolute()
    return arguments


def main() -> int:
    if FIRST_CONTACT in sys.argv:
        return first_contact.main([word for word in sys.argv[1:] if word != FIRST_CONTACT])
    arguments = parse_arguments()
    try:
        load_driver()
        if not arguments.no_build:
            build(arguments)
        document = measure(arguments)
    except NoGpu as error:
        print(f"run_gpu: no GPU: {error}", file=sys.stderr)
        return NO_GPU
    except subprocess.CalledProcessError as error:
        print(f"run_gpu: building failed: {program_of(error)} ended with exit code {error.returncode}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    last = figures.read(arguments.json)
    write(document, arguments.json)
    print("\n" + figures.comparison(last, document) + figures.highlights(document) + figures.summary(document))
    wrong = figures.problems(document)
    print(f"{'FAILED: ' + '; '.join(wrong) if wrong else 'All bytes are equal.'} Figures: {arguments.json}")
    return 1 if wrong else 0


def load_driver() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoGpu(f"NVIDIA's driver can't be loaded: {error}; install driver 525 or later") from error


def build(arguments: argparse.Namespace) -> None:
    """With machine code for every GPU."""
    say("building")
    if subprocess.run(["cmake", "-P", ROOT / "cmake" / "QcclNvcc.cmake"], capture_output=True).returncode != 0:
        say("installing CUDA's compiler in .venv-cuda (300 MB)")
        subprocess.run([ROOT / "scripts" / "install_cuda.sh"], check=True)
    kernels = ["-DQCCL_DEVICES=ON", "-DQCCL_DEVICE_KERNELS=ON", "-DQCCL_CUDA_ARCHITECTURES=all"]
    subprocess.run(["cmake", "--preset", "default", *kernels], cwd=ROOT, check=True)
    environment = {**os.environ, "QCCL_VENV": str(arguments.venv)}
    subprocess.run([ROOT / "scripts" / "build_python.sh", *TARGETS], check=True, env=environment)


def measure(arguments: argparse.Namespace) -> figures.Document:
    start = time.monotonic()
    document: figures.Document = {"date": datetime.datetime.now().isoformat(timespec="minutes"), "parts": {}}
    for number, name in enumerate(arguments.parts, start=1):
        say(f"{name} ({number} of {len(arguments.parts)}, after {time.monotonic() - start:.0f} s)")
        document["parts"][name] = run_part(PARTS[name], arguments)
        if device := document["parts"][name].get("device"):
            document["device"] = device
    document["seconds"] = round(time.monotonic() - start, 1)
    return document


def run_part(part: Callable[[argparse.Namespace], dict[str, Any]], arguments: argparse.Namespace) -> dict[str, Any]:
    start = time.monotonic()
    try:
        result = part(arguments)
    except Skipped as reason:
        say(f"skipped: {reason}")
        result = {"skipped": str(reason)}
    except subprocess.CalledProcessError as error:
        result = {"failed": f"{program_of(error)} ended with exit code {error.returncode}"}
    except subprocess.TimeoutExpired as error:
        result = {"failed": f"{program_of(error)} did not end within {PART_LIMIT_SECONDS} s"}
    result["seconds"] = round(time.monotonic() - start, 1)
    return result


def program_of(error: subprocess.CalledProcessError | subprocess.TimeoutExpired) -> str:
    return Path(str(error.cmd[0])).name


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def write(document: figures.Document, file: Path) -> None:
    """The last file stays beside the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        file.replace(file.with_suffix(".last.json"))
    file.write_text(json.dumps(document, indent=1) + "\n")


# ---- parts


def run_program(command: list[object], good: tuple[int, ...] = (0,), **variables: str) -> int:
    """Its output is progress. Returns the exit code, one of the good ones."""
    words = [str(word) for word in command]
    ended = subprocess.run(words, cwd=ROOT, env={**os.environ, **variables}, timeout=PART_LIMIT_SECONDS)
    if ended.returncode == NO_GPU:
        raise NoGpu(f"{Path(words[0]).name} finds none")
    if ended.returncode not in good:
        raise subprocess.CalledProcessError(ended.returncode, words)
    return ended.returncode


def with_json(command: list[object], good: tuple[int, ...]) -> dict[str, Any]:
    """The document that the program writes, with `equal` from its exit code."""
    with tempfile.TemporaryDirectory(prefix="qccl-gpu-") as folder:
        file = Path(folder) / "figures.json"
        code = run_program([*command, "--json", file], good)
        return {**json.loads(file.read_text()), "equal": code == 0}


def run_kernels(arguments: argparse.Namespace) -> dict[str, Any]:
    command = [BENCH / "gpu_kernels", "--elements", arguments.elements, "--slice", arguments.slice]
    command += ["--bytes", arguments.copy_bytes, "--samples", arguments.samples]
    return with_json(command + (["--plant", "sign"] if arguments.plant == "kernels" else []), (0, 1))


def run_ranks(arguments: argparse.Namespace) -> dict[str, Any]:
    command = [BENCH / "gpu_ranks", "--worlds", *arguments.worlds, "--least", arguments.least]
    command += ["--largest", arguments.largest, "--seconds", arguments.seconds, "--iterations", arguments.iterations]
    return with_json(command + (["--plant"] if arguments.plant == "ranks" else []), (0, 1))


def run_processes(arguments: argparse.Namespace) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    equal = True
    for ranks in arguments.processes:
        for transport in ("shm", "tcp"):
            for collective in ("all_reduce", "all_gather"):
                command = [PROGRAM, "perf", collective, "--device", "cuda", "-g", ranks, "--transport", transport]
                command += ["-b", arguments.least, "-e", arguments.largest_of_processes, "-f", 16]
                command += ["-n", arguments.iterations, "--compression", ";".join(COMPRESSIONS)]
                document = with_json(command, (0, 7))
                equal = equal and document["equal"]
                rows += [row_of(entry, ranks, transport) for entry in document["results"] if entry["in_place"]]
    return {"rows": rows, "equal": equal}


def row_of(entry: dict[str, Any], ranks: int, transport: str) -> dict[str, Any]:
    """An entry of `qccl perf`."""
    kept = ("collective", "bytes", "compression", "busbw_GBps", "wrong", "same_bits")
    return {"ranks": ranks, "transport": transport, "us": entry["time_us"]["median"]} | {k: entry[k] for k in kept}


def run_gates(arguments: argparse.Namespace) -> dict[str, Any]:
    """Each case is a process of its own: a hang is that process's."""
    cases = {"hang": 0} if arguments.plant == "gates" else GATE_CASES
    rows = [gate_row(case, code, count, arguments) for count in CONNECTIONS for case, code in cases.items()]
    bad = [f"{row['case']} (connections: {row['connections']}) {row['end']}" for row in rows if row["end"] != "ok"]
    return {"rows": rows, **({"failed": "; ".join(bad)} if bad else {})}


def gate_row(case: str, good: int, connections: str, arguments: argparse.Namespace) -> dict[str, Any]:
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="qccl-gpu-") as folder:
        file = Path(folder) / "order.json"
        environment = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": connections}
        command = [str(BENCH / "gpu_gates"), case, "--json", str(file)]
        end = "ok"
        try:
            code = subprocess.run(command, env=environment, timeout=arguments.gate_seconds).returncode
        except subprocess.TimeoutExpired:
            end = f"did not end within {arguments.gate_seconds:g} s"
        else:
            if code == NO_GPU:
                raise NoGpu("gpu_gates finds none")
            if code != good:
                end = f"ended with exit code {code}"
        order = json.loads(file.read_text())["order"] if file.exists() else "unknown"
    seconds = round(time.monotonic() - start, 1)
    waits = {"gate": "streams wait", "host": "the host waits"}.get(order, order)
    print(f"{case}, connections: {connections}: {waits}: {end}, {seconds} s", flush=True)
    return {"case": case, "connections": int(connections), "order": order, "end": end, "seconds": seconds}


def torch_python(arguments: argparse.Namespace) -> Path:
    """The Python whose torch sees a GPU."""
    python = arguments.venv / "bin" / "python"
    script = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"
    said = subprocess.run([python, "-c", script], capture_output=True, text=True) if python.exists() else None
    if said is None or said.returncode != 0:
        raise Skipped(f"there is no {python} with a torch: docs/gpu.md makes an environment, --venv names it")
    release, cuda, sees_gpu = said.stdout.split()
    if cuda == "None":
        raise Skipped(f"torch {release} in {arguments.venv} is built without CUDA: docs/gpu.md makes an environment "
                      "with one, --venv names it")  # fmt: skip
    if sees_gpu != "True":
        raise Skipped(f"torch {release} in {arguments.venv} sees no GPU: its CUDA {cuda} may want a later driver")
    return python


def run_tests(arguments: argparse.Namespace) -> dict[str, Any]:
    runs: dict[str, Callable[[], int]] = {"tests/gpu": lambda: run_program([GPU_TESTS], (0, 1))}
    runs |= {tool: partial(run_sanitizer, tool) for tool in SANITIZERS}
    runs["tests/torch/device"] = lambda: run_torch_tests(torch_python(arguments))
    codes: dict[str, int] = {}
    left_out: dict[str, str] = {}
    for name, run in runs.items():
        try:
            codes[name] = run()
        except Skipped as reason:
            say(f"{name}: left out: {reason}")
            left_out[name] = str(reason)
    failed = [name for name, code in codes.items() if code != 0]
    return {"ran": list(codes), "left_out": left_out, **({"failed": ", ".join(failed)} if failed else {})}


def run_torch_tests(python: Path) -> int:
    if subprocess.run([python, "-c", "import pytest, pytest_timeout"], capture_output=True).returncode != 0:
        raise Skipped(f"{python} has no pytest or no pytest-timeout")
    files = [ROOT / "tests" / "torch" / "device" / f"test_{name}.py" for name in TORCH_TESTS]
    return run_program([python, "-m", "pytest", "-q", "-rs", *files], (0, 1), QCCL_TEST_DEVICE="cuda")


def run_sanitizer(tool: str) -> int:
    """The kernels on some slices, under a tool of compute-sanitizer."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        raise Skipped("compute-sanitizer is not in PATH")
    say(f"kernels under {tool}")
    kernels = [BENCH / "gpu_kernels", *SANITIZED_SIZES]
    return run_program([program, "--tool", tool, "--error-exitcode", SANITIZER_FOUND, *kernels], (0, SANITIZER_FOUND))


def rows_of(command: list[object], **variables: str) -> list[dict[str, Any]]:
    """Those that a program of torch prints, after ROW; all that it prints is progress."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    said = subprocess.run([str(word) for word in command], env=environment, check=True, stdout=subprocess.PIPE,
                          text=True, timeout=PART_LIMIT_SECONDS).stdout  # fmt: skip
    print(said, end="", flush=True)
    return [json.loads(line[4:]) for line in said.splitlines() if line.startswith("ROW ")]


def run_training(arguments: argparse.Namespace) -> dict[str, Any]:
    python = torch_python(arguments)
    rows = []
    for ranks in arguments.processes:
        for order in ORDERS:
            for way in ("ddp", "fsdp2"):
                command = [PROGRAM, "run", "-n", ranks, "--", python, TRAINING, "--device", "cuda", "--way", way]
                command += ["--steps", arguments.steps, *COMPRESSIONS]
                rows += [row | {"order": order} for row in rows_of(command, QCCL_STREAM_ORDER=order)]
    return {"rows": rows}


def run_nccl(arguments: argparse.Namespace) -> dict[str, Any]:
    """The same training through torch's nccl backend, on QCCL, and through the qccl backend."""
    python = torch_python(arguments)
    rows: list[dict[str, Any]] = []
    wrong: list[str] = []
    for ranks in arguments.processes:
        start = [PROGRAM, "run", "-n", ranks, "--"]
        train = [python, NCCL_TRAINING, "--steps", NCCL_STEPS, "--backend"]
        preloaded = [*start, "env", f"LD_PRELOAD={NCCL}", *train, "nccl"]
        runs = [rows_of([*start, *train, "qccl"], QCCL_COMPRESSION="none")]
        runs += [rows_of(preloaded, QCCL_COMPRESSION=compression) for compression in ("none", COMPRESSIONS[1])]
        rows += [row for of_run in runs for row in of_run]
        wrong += losses_that_differ(runs[0][0], runs[1][0], runs[2][0])
    return {"rows": rows, **({"failed": "; ".join(wrong)} if wrong else {})}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "kernels": run_kernels,
    "ranks": run_ranks,
    "processes": run_processes,
    "gates": run_gates,
    "tests": run_tests,
    "training": run_training,
    "nccl": run_nccl,
}

if __name__ == "__main__":
    sys.exit(main())
