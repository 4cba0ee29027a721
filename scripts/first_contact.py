"""The first minutes on a machine with a GPU: everything that needs one, nothing installed, nothing built.

  scripts/pack_gpu.sh                                       elsewhere, before: build-gpu/ has what must travel
  python3 scripts/run_gpu.py --first-contact                there: all parts, nine minutes, build-first-contact/
  python3 scripts/run_gpu.py --first-contact --out $OUT --parts doctor bytes figures --formats sign minmax:bits=4
  python3 scripts/run_gpu.py --first-contact --rehearse     without a GPU: over the fake driver, with tiny sizes

It takes a Python of 3.10 or later with its standard library, and the programs of build-gpu/, else those of build/. Each
kernel and each case is a process of its own with a limit of time, so that a hang or an error of the device costs no
more than that. After each the folder has its result: results.jsonl, log.txt, table.txt, and encode.ncu-rep at the end.

Parts, in this order; each must leave those behind it their time:
  doctor      the driver, its calls, this machine, torch
  bytes       each format's jobs (encode, reduce, decode) against the host's kernels, byte by byte
  figures     their speed with several numbers of blocks; not of formats that failed in bytes
  sanitizers  each kernel under compute-sanitizer's memcheck and racecheck
  tests       tests/gpu, each suite; then each test of those that failed
  ranks       2, 4 and 8 ranks as threads: bits equal to the host's, and speed
  gates       streams that wait for calls, 1 to 64 of them, and how processes end meanwhile
  torch       tests/torch/device
  ddp         steps of training with DDP and FSDP2
  nccl        NCCL's interface, from C++ and through torch's nccl backend
  ncu         Nsight Compute on one encode

Exit 0; 1 if bytes differ or a step failed; 3 without a driver or a GPU.
"""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from bench.gpu import first_contact_table  # noqa: E402
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
from bench.gpu.steps import FAILED, NO_GPU, OK, NoGpu, Result, Runner, Step  # noqa: E402

Steps = Generator[Step, Result, None]  # gets the result of each

# Seconds of each part, of 540; a part that needs less leaves the rest to those behind it.
SHARES = {"doctor": 20, "bytes": 70, "figures": 100, "sanitizers": 55, "tests": 75, "ranks": 40, "gates": 45,
          "torch": 50, "ddp": 35, "nccl": 35, "ncu": 15}  # fmt: skip
# Timed first.
MAIN_FORMATS = ["none of float32", "minmax:bits=4", "minmax:bits=8", "int:bits=8", "sign", "cast:type=bf16"]
OTHER_CASES = ["calls of the driver", "pinned memory", "registered shared memory"]  # of gpu_kernels
NCCL_CASES = ["collectives", "messages", "scalars", "in_order", "several_streams", "refused", "pinned", "memory"]
# --rehearse: sizes for the fake driver, which computes on a processor.
TINY = {"compared": 20_000, "elements": 20_000, "slice": 8192, "bytes": 65_536, "samples": 0, "worlds": [2],
        "least": 65_536, "largest": 65_536, "iterations": 1, "streams": [1, 4, 7], "steps": 1}  # fmt: skip


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run_gpu.py --first-contact", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    out = Path(os.environ.get("OUT") or ROOT / "build-first-contact")
    packed = ROOT / "build-gpu"
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--formats", nargs="+", help="of the kernels; default: all")
    parser.add_argument("--suites", nargs="+", help="of the tests; default: all")
    parser.add_argument("--plant", metavar="FORMAT", help="change a byte of it, to see it found")
    parser.add_argument("--patience", type=float, default=1, help="multiplies the limits of all steps")
    parser.add_argument("--seconds", type=float, default=540, help="of the whole; default 540")
    parser.add_argument("--out", type=Path, default=out, help="folder of the results; default $OUT")
    parser.add_argument("--build", type=Path, default=packed if packed.exists() else ROOT / "build",
                        help="folder of the programs")  # fmt: skip
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="one that has torch; default: this")
    parser.add_argument("--rehearse", action="store_true", help="over the fake driver, with torch on the processors")
    sizes = parser.add_argument_group("sizes")
    sizes.add_argument("--compared", type=int, default=4_000_000, help="elements of a format whose bytes are compared")
    sizes.add_argument("--elements", type=int, default=64_000_000, help="elements of a format that is timed")
    sizes.add_argument("--slice", type=int, default=131_072, help="elements of a slice")
    sizes.add_argument("--bytes", type=int, default=256 << 20, help="of copies")
    sizes.add_argument("--samples", type=int, default=3, help="of each time of a kernel")
    sizes.add_argument("--blocks", type=int, nargs="+", default=[16, 64, 132, 1056])
    sizes.add_argument("--worlds", type=int, nargs="+", default=[2, 4, 8], help="ranks as threads")
    sizes.add_argument("--least", type=int, default=64 << 10, help="bytes of the ranks' smallest call")
    sizes.add_argument("--largest", type=int, default=256 << 20, help="bytes of the ranks' largest call")
    sizes.add_argument("--iterations", type=int, default=10)
    sizes.add_argument("--streams", type=int, nargs="+", default=[1, 4, 7, 64], help="that wait at gates at once")
    sizes.add_argument("--steps", type=int, default=10, help="of training")
    if "--rehearse" in words:
        parser.set_defaults(**TINY, build=ROOT / "build")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    arguments = parse_arguments(words)
    contact = Contact(arguments)
    try:
        return contact.run()
    except NoGpu as error:
        print(f"run_gpu: no GPU: {error}", file=sys.stderr)
        return NO_GPU
    except KeyboardInterrupt:
        return 130


class Contact:
    """A run. Each part makes its steps, which may depend on the results of those before."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.build = arguments.build.absolute()
        self.kernels = self.build / "bench" / "gpu_kernels"
        self.libraries = tempfile.TemporaryDirectory(prefix="qccl-lib-")
        self.runner = Runner(arguments.out, self.environment(), first_contact_table.text)
        self.formats: dict[str, list[str]] = {}  # the names of each one's kernels
        self.lack_of_torch: str | None = None  # once asked

    def run(self) -> int:
        start = time.monotonic()
        left = start
        for part in PARTS:
            left += SHARES[part] * self.arguments.seconds / sum(SHARES.values())
            if part not in self.arguments.parts:
                continue
            self.run_part(part, end=left)
        self.libraries.cleanup()
        print("\n" + first_contact_table.text(self.runner.results), end="")
        failed = [result for result in self.runner.results if result.outcome == FAILED]
        seconds = time.monotonic() - start
        print(f"{f'FAILED: {len(failed)} steps' if failed else 'No step failed'}, after {seconds:.0f} s. "
              f"Results: {self.arguments.out}")  # fmt: skip
        return 1 if failed else 0

    def ask(self, *command: object) -> str:
        """What the command prints, if it ends."""
        try:
            words = [str(word) for word in command]
            said = subprocess.run(words, env=self.runner.environment, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return said.stdout

    def run_part(self, part: str, end: float) -> None:
        steps = PARTS[part](self)
        try:
            step = next(steps)
            while True:
                step = replace(step, limit=step.limit * self.arguments.patience)
                step = steps.send(self.runner.run(part, step, end))
        except StopIteration:
            pass

    # ---- the machine

    def environment(self) -> dict[str, str]:
        """That of all steps: the package from the pack, and its libraries that this machine lacks."""
        package = self.build / "python"
        paths = [str(package if package.exists() else ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        folders = [str(ROOT / "build" / "fake_cuda")] if self.arguments.rehearse else []
        for library in sorted((self.build / "lib").glob("*.so*")):
            if not is_installed(library.name):
                (Path(self.libraries.name) / library.name).symlink_to(library)
        folders += [self.libraries.name, os.environ.get("LD_LIBRARY_PATH", "")]
        return os.environ | {
            "PYTHONPATH": ":".join(filter(None, paths)),
            "LD_LIBRARY_PATH": ":".join(filter(None, folders)),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    # ---- parts

    def doctor(self) -> Steps:
        sizes: list[object] = ["--bytes", self.arguments.bytes, "--samples", self.arguments.samples]
        yield self.kernel_step("calls of the driver", "calls of the driver", sizes, limit=15)
        yield Step("qccl doctor", [self.build / "qccl", "doctor"], 15)
        if smi := shutil.which("nvidia-smi"):
            yield Step("nvidia-smi", [smi], 10)
        said = "import torch; print('torch', torch.__version__, 'cuda', torch.version.cuda, torch.cuda.is_available())"
        yield Step("torch", [self.arguments.python, "-c", said], 20, good=(0, 1))  # 1: there is none

    # ---- kernels

    def kernel_step(self, name: str, case: str, sizes: list[object], limit: float) -> Step:
        return Step(name, [self.kernels, "--case", case, *sizes], limit, writes_json=True)

    def wanted_formats(self) -> list[str]:
        if not self.formats:
            lines = [line.split("\t") for line in self.ask(self.kernels, "--list").splitlines() if "\t" in line]
            self.formats = {name: kernels.split() for name, kernels in lines}
        chosen = self.arguments.formats or list(self.formats)
        must_exist("--formats", chosen, self.formats)
        return [name for name in self.formats if name in chosen]

    def bytes(self) -> Steps:
        sizes: list[object] = ["--compare-only", "--elements", self.arguments.compared, "--slice", self.arguments.slice]
        for name in self.wanted_formats():
            planted = ["--plant", name] if name == self.arguments.plant else []
            yield self.kernel_step(name, name, sizes + planted, limit=20)

    def figures(self) -> Steps:
        sizes = ["--elements", self.arguments.elements, "--slice", self.arguments.slice]
        sizes += ["--bytes", self.arguments.bytes, "--samples", self.arguments.samples]
        sizes += ["--blocks", *self.arguments.blocks]
        bad = {result.name for result in self.runner.of("bytes") if result.outcome == FAILED}
        formats = self.wanted_formats()
        formats.sort(key=lambda name: MAIN_FORMATS.index(name) if name in MAIN_FORMATS else len(MAIN_FORMATS))
        for name in [*formats[: len(MAIN_FORMATS)], *OTHER_CASES[1:], *formats[len(MAIN_FORMATS) :]]:
            if name in bad:
                self.runner.leave_out("figures", name, "it failed in bytes")
            else:
                yield self.kernel_step(name, name, sizes, limit=20)

    def sanitizers(self) -> Steps:
        """A format for each kernel."""
        program = find_tool("compute-sanitizer")
        if program is None:
            self.runner.leave_out("sanitizers", "all", "compute-sanitizer is not installed")
            return
        of_kernel: dict[str, str] = {}
        for name in self.wanted_formats():
            for kernel in self.formats[name]:
                of_kernel.setdefault(kernel, name)
        for tool in SANITIZERS:
            check = [program, "--tool", tool, "--error-exitcode", SANITIZER_FOUND, self.kernels, *SANITIZED_SIZES]
            for kernel, name in of_kernel.items():
                yield Step(f"{tool}, {kernel}", [*check, "--compare-only", "--case", name], 20)

    # ---- calls

    def tests(self) -> Steps:
        program = self.build / "tests" / "gpu_tests"
        suites = tests_of_suites(self.ask(program, "--gtest_list_tests"))
        if not suites:
            self.runner.fail("tests", "gpu_tests", "it lists no tests")
            return
        chosen = self.arguments.suites or list(suites)
        must_exist("--suites", chosen, suites)
        again: list[str] = []
        for suite in chosen:
            whole = yield Step(suite, [program, f"--gtest_filter={suite}.*"], 60, reads=ends_of_tests)
            if whole.outcome == FAILED:
                ended = [*whole.document["passed"], *whole.document["left_out"]]
                again += [name for test in suites[suite] if (name := f"{suite}.{test}") not in ended]
        for test in again:
            yield Step(test, [program, f"--gtest_filter={test}"], 15, reads=ends_of_tests)

    def ranks(self) -> Steps:
        for world in self.arguments.worlds:
            sizes = ["--worlds", world, "--least", self.arguments.least, "--largest", self.arguments.largest]
            sizes += ["--iterations", self.arguments.iterations, "--seconds", 10]
            yield Step(f"{world} ranks", [self.build / "bench" / "gpu_ranks", *sizes], 30, writes_json=True)

    def gates(self) -> Steps:
        program = self.build / "bench" / "gpu_gates"

        def step(case: str, connections: str, *flags: object) -> Step:
            name = " ".join(map(str, [case, *flags, "connections:", connections]))
            variables = {"CUDA_DEVICE_MAX_CONNECTIONS": connections}
            return Step(name, [program, case, *flags], 15, variables, (GATE_CASES[case],), writes_json=True)

        for streams in self.arguments.streams:
            yield step("streams", CONNECTIONS[0], "--streams", streams)
        for case in [name for name in GATE_CASES if name != "streams"]:
            yield step(case, CONNECTIONS[0], *(["--streams", 7] if case == "free" else []))
        for connections in CONNECTIONS[1:]:
            yield step("streams", connections, "--streams", 7)

    # ---- torch

    def lacks_torch(self, part: str) -> bool:
        """Says so as a result where torch sees no GPU; --rehearse does without one."""
        if self.lack_of_torch is None:
            said = self.ask(self.arguments.python, "-c", "import torch; print(torch.cuda.is_available())").strip()
            serves = said == "True" or (said == "False" and self.arguments.rehearse)
            why = "its torch sees no GPU" if said == "False" else "it has no torch"
            self.lack_of_torch = "" if serves else f"{self.arguments.python}: {why}"
        if self.lack_of_torch:
            self.runner.leave_out(part, "all", self.lack_of_torch)
        return self.lack_of_torch != ""

    def torch(self) -> Steps:
        if self.lacks_torch("torch"):
            return
        variables = {} if self.arguments.rehearse else {"QCCL_TEST_DEVICE": "cuda"}
        for name in TORCH_TESTS[:1] if self.arguments.rehearse else TORCH_TESTS:
            test = ROOT / "tests" / "torch" / "device" / f"test_{name}.py"
            command = [self.arguments.python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", test]
            yield Step(f"test_{name}", command, 45, variables)

    def training(self, program: str, flags: list[object], variables: dict[str, str], name: str) -> Step:
        start = [self.build / "qccl", "run", "-n", 2, "--"]
        preload = ["env", f"LD_PRELOAD={self.build / 'libqccl_nccl.so'}"] if "nccl" in flags else []
        device = "cpu" if self.arguments.rehearse else "cuda"
        command = [self.arguments.python, ROOT / "bench" / "gpu" / program, "--device", device]
        command += ["--steps", self.arguments.steps, *flags]
        return Step(name, [*start, *preload, *command], 30, variables, reads=rows_of_ranks)

    def ddp(self) -> Steps:
        if self.lacks_torch("ddp"):
            return
        for way in ("ddp", "fsdp2"):
            for order in ORDERS:
                flags = ["--way", way, COMPRESSIONS[0], COMPRESSIONS[-1]]
                yield self.training("training.py", flags, {"QCCL_STREAM_ORDER": order}, f"{way}, {order} waits")

    def nccl(self) -> Steps:
        program = self.build / "tests" / "nccl" / "conformance" / "gpu_nccl"
        library = {"LD_LIBRARY_PATH": f"{self.build / 'nccl'}:{self.runner.environment['LD_LIBRARY_PATH']}"}
        for case in NCCL_CASES:
            yield Step(case, [program, case], 15, library | {"QCCL_TIMEOUT": "10", "QCCL_INIT_TIMEOUT": "10"})
        if self.arguments.rehearse:
            self.runner.leave_out("nccl", "training", "the processors' torch has no nccl backend")
            return
        if self.lacks_torch("nccl"):
            return
        rows = []
        for backend, codec in (("qccl", "none"), ("nccl", "none"), ("nccl", COMPRESSIONS[1])):
            name = f"training, {backend}, {codec}"
            trained = yield self.training("nccl_training.py", ["--backend", backend], {"QCCL_COMPRESSION": codec}, name)
            rows += trained.document or []
        if len(rows) == 3 and (wrong := losses_that_differ(*rows)):
            self.runner.fail("nccl", "losses", "; ".join(wrong))

    # ---- Nsight Compute

    def ncu(self) -> Steps:
        program = find_tool("ncu")
        if program is None:
            self.runner.leave_out("ncu", "all", "ncu is not installed")
            return
        report = self.arguments.out.absolute() / "encode"
        profile = [program, "--set", "full", "--kernel-name", "regex:qccl_minmax", "--launch-count", 1]
        profile += ["--clock-control", "none", "--force-overwrite", "--export", report]
        case = [self.kernels, "--case", "minmax:bits=4", "--compare-only", "--elements", self.arguments.compared]
        profiled = yield Step("minmax:bits=4 encode", [*profile, *case], 30)
        if profiled.outcome == OK:
            yield Step("its pages", [program, "--import", report.with_suffix(".ncu-rep"), "--page", "details"], 15)


def must_exist(flag: str, chosen: list[str], known: dict[str, list[str]]) -> None:
    for name in chosen:
        if name not in known:
            print(f"run_gpu: {flag} {name}: there is none; there are {', '.join(known)}", file=sys.stderr)
            raise SystemExit(2)


def is_installed(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def find_tool(name: str) -> str | None:
    """In PATH, or where CUDA's toolkit and Nsight Compute put it."""
    places = [*Path("/usr/local").glob("cuda*/bin"), *Path("/opt/nvidia/nsight-compute").glob("*")]
    return shutil.which(name) or shutil.which(name, path=":".join(map(str, places)))


def tests_of_suites(listed: str) -> dict[str, list[str]]:
    """Of what --gtest_list_tests prints."""
    suites: dict[str, list[str]] = {}
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            suites[list(suites)[-1]].append(name.strip())
        elif name.endswith("."):
            suites[name[:-1]] = []
    return suites


def ends_of_tests(output: str) -> dict[str, Any]:
    """What gpu_tests said of each test."""
    lines = output.splitlines()
    left_out = [line.removeprefix("left out: ").split(": ", 1) for line in lines if line.startswith("left out: ")]
    return {
        "passed": [line.removeprefix("passed: ") for line in lines if line.startswith("passed: ")],
        "failed": [line.removeprefix("FAILED: ") for line in lines if line.startswith("FAILED: ")],
        "left_out": {name: reason for name, reason in left_out},
    }


def rows_of_ranks(output: str) -> list[dict[str, Any]]:
    """What a program of torch printed after ROW."""
    return [json.loads(line[4:]) for line in output.splitlines() if line.startswith("ROW ")]


PARTS: dict[str, Callable[[Contact], Steps]] = {
    "doctor": Contact.doctor,
    "bytes": Contact.bytes,
    "figures": Contact.figures,
    "sanitizers": Contact.sanitizers,
    "tests": Contact.tests,
    "ranks": Contact.ranks,
    "gates": Contact.gates,
    "torch": Contact.torch,
    "ddp": Contact.ddp,
    "nccl": Contact.nccl,
    "ncu": Contact.ncu,
}
