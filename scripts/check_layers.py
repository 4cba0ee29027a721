#!/usr/bin/env python3
"""Checks which files may include which, and code that is forbidden or allowed in one place only.

    check_layers.py [root]     prints FILE:LINE: [RULE] what is wrong and what to do; exit 1 if any

The tables below are the rules. A new folder under src/ needs a line in MAY_INCLUDE.
Tests (tests/, *_test.cc, their headers) and benchmarks may do anything.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from cpp_source import Statement, blank_literals, scan, source_files, without_angles

# Folder (or one file) -> the headers that it may include besides those of its own folder and include/qccl.
# "x/" is the files of src/x and of its subfolders that have no line of their own; "x/*" is each of its subfolders;
# "x/**" is all of them; "x/y.h" is that one file.
MAY_INCLUDE = {
    "include/qccl": [],
    "src/base": [],
    "src/os": ["base/"],
    "src/secure": ["os/", "base/"],
    # Rooms of kernels: what all share, lanes of values, sums, then each codec's.
    "src/kernels": ["base/"],
    "src/kernels/lanes": ["kernels/", "base/"],
    "src/kernels/reduce": ["kernels/lanes/", "kernels/", "base/"],
    "src/kernels/*": ["kernels/reduce/", "kernels/lanes/", "kernels/", "base/"],
    "src/kernels/device": ["kernels/*/", "kernels/reduce/", "kernels/lanes/", "kernels/", "base/"],
    "src/wire": ["base/"],
    "src/codec": ["kernels/lanes/", "kernels/", "kernels/device/payload_format.h", "base/", "codec/*/"],
    # Each codec; no other layer sees one.
    "src/codec/*": ["kernels/*/", "kernels/reduce/", "kernels/lanes/", "kernels/", "kernels/device/payload_format.h",
                    "base/", "codec/"],
    "src/plan": ["codec/geometry.h", "base/"],
    "src/plan/algorithms": ["plan/", "codec/geometry.h", "base/"],
    "src/plan/check": ["plan/algorithms/", "plan/", "codec/geometry.h", "base/"],
    "src/plan/cost": ["plan/algorithms/", "plan/", "codec/geometry.h", "base/"],
    "src/bootstrap/launcher": ["secure/", "os/", "base/"],
    "src/bootstrap/store": ["bootstrap/launcher/", "secure/", "os/", "wire/", "base/"],
    # The keys of our stores. The store itself knows none of them.
    "src/bootstrap/protocol": ["bootstrap/store/", "bootstrap/launcher/", "base/"],
    "src/bootstrap/meeting": ["bootstrap/protocol/", "bootstrap/store/", "bootstrap/launcher/", "secure/", "os/",
                              "wire/", "base/"],
    "src/bootstrap/mesh": ["bootstrap/meeting/", "bootstrap/protocol/", "bootstrap/store/", "bootstrap/launcher/",
                           "secure/", "os/", "wire/", "base/"],
    "src/bootstrap/door": ["bootstrap/mesh/", "bootstrap/meeting/", "bootstrap/protocol/", "bootstrap/store/",
                           "bootstrap/launcher/", "secure/", "os/", "wire/", "base/"],
    "src/transport/transport.h": ["base/"],  # the contract that engine and sim see
    "src/transport": ["os/", "base/"],  # the code that the real transports share
    "src/transport/sim": ["transport/transport.h", "base/"],
    "src/transport/shm": ["transport/", "wire/", "os/", "base/"],
    "src/transport/tcp": ["transport/", "secure/", "wire/", "os/", "base/"],
    "src/observe": ["base/"],
    "src/dashboard": ["dashboard/http/http_server.h", "observe/", "os/", "base/"],
    "src/dashboard/http": [],
    "src/device": ["kernels/device/slice_job.h", "kernels/device/job_list.h", "base/"],
    # Storeys of the engine, the lowest first. No file of a lower one names a higher one.
    "src/engine/frames": ["transport/transport.h", "wire/", "base/"],
    "src/engine/shrink": ["wire/", "base/"],
    "src/engine/call": ["engine/frames/", "plan/", "plan/algorithms/", "codec/", "transport/transport.h", "wire/",
                        "base/"],
    # kernels: raw data bypasses the codecs; the engine adds it, in the floating-point environment that it sets.
    "src/engine/compute": ["engine/call/", "kernels/copy.h", "kernels/reduce/reduce.h",
                           "kernels/float_environment.h", "plan/", "codec/", "transport/transport.h", "base/"],
    "src/engine/state": ["engine/call/", "engine/compute/", "engine/frames/", "observe/", "transport/transport.h",
                         "wire/", "base/"],
    "src/engine/run": ["engine/state/", "engine/compute/", "engine/call/", "engine/frames/", "kernels/copy.h",
                       "codec/", "plan/", "transport/transport.h", "wire/", "base/"],
    "src/engine/act": ["engine/run/", "engine/state/", "engine/shrink/", "engine/call/", "engine/frames/",
                       "kernels/float_environment.h", "transport/transport.h", "wire/", "base/"],
    "src/engine": ["engine/act/", "engine/state/", "engine/compute/", "engine/call/", "engine/frames/",
                   "transport/transport.h", "base/"],
    "src/engine/progress": ["engine/", "engine/call/", "kernels/float_environment.h", "transport/transport.h", "base/"],
    # Runs the engine over the simulated network; the only layer besides job that names a concrete transport.
    "src/sim": ["engine/**", "plan/**", "codec/", "base/", "transport/sim/"],
    "src/choice": ["engine/call/", "plan/**", "codec/", "transport/", "base/"],
    # Calls on device memory: the contract that the layers above see, which no_devices fulfils as well.
    "src/device_engine/devices.h": ["engine/call/", "transport/transport.h", "base/"],
    "src/device_engine/device_findings.h": ["base/"],
    # Copies of a call, and its jobs; then what makes its steps jobs.
    "src/device_engine/staged": ["engine/compute/", "engine/call/", "kernels/device/slice_job.h", "device/", "base/"],
    "src/device_engine/lanes": ["device_engine/staged/", "engine/run/", "engine/compute/", "engine/call/",
                                "kernels/copy.h", "kernels/device/slice_job.h", "plan/", "codec/", "base/"],
    "src/device_engine": ["device_engine/lanes/", "device_engine/staged/", "engine/call/", "device/", "os/",
                          "transport/transport.h", "base/"],
    "src/no_devices": ["device_engine/devices.h", "device_engine/device_findings.h", "base/"],
    "src/job": ["dashboard/", "job/status/", "device_engine/devices.h", "choice/", "engine/**", "bootstrap/**",
                "observe/", "plan/**", "codec/", "transport/", "transport/shm/", "transport/tcp/", "secure/", "wire/",
                "os/", "base/"],
    "src/job/status": ["engine/**", "observe/", "os/", "base/"],
    "src/group": ["job/", "device_engine/devices.h", "choice/", "engine/**", "kernels/onebit/onebit.h", "plan/**",
                  "codec/", "observe/", "wire/", "base/"],
    "src/group/inside": ["group/", "job/", "choice/", "engine/**", "base/"],
    "src/group/growth": ["group/", "job/", "engine/**", "bootstrap/**", "secure/", "os/", "base/"],
    "src/api": ["group/", "group/growth/", "job/status/", "job/", "choice/", "engine/**", "bootstrap/**",
                "device_engine/devices.h", "device_engine/device_findings.h", "kernels/", "plan/**", "codec/",
                "observe/", "transport/shm/layout.h", "secure/", "os/", "base/"],
    # Above the public interface. Two of them use a group's inside, too.
    "src/extras/window": ["group/", "job/", "engine/**", "os/", "base/"],
    "src/extras/onebit": ["group/", "job/", "device_engine/devices.h", "engine/**", "kernels/onebit/onebit.h",
                          "kernels/float_environment.h", "base/"],
    "src/extras/train": ["base/"],
    "src/extras/parallel": [],
    "src/extras/sparse": ["kernels/reduce/reduce.h", "base/"],
    "bindings": [],
    "bindings/nccl": ["base/options.h", "base/log.h", "base/half.h", "base/text.h"],
    "tools": ["base/text.h"],
    "tools/run": ["os/", "secure/key.h", "base/text.h"],
    "tools/dash": ["dashboard/", "base/text.h"],
    "tools/doctor": ["os/", "plan/**", "base/"],
    "examples": [],
    "testing": [],
}  # fmt: skip

# The rows of these folders may allow a cycle: the registry names each codec, and each codec implements codec.h.
CYCLES = ("codec", "codec/*")

# Programs that show the work of the planner and the codecs include their internals.
TOOL_EXTRAS = {
    "perf": ["plan/**", "codec/", "base/half.h"],
    "device_buffers": ["device/device.h"],
    "plan_simulate": ["plan/**", "codec/", "sim/"],
    "plan": ["plan/**", "codec/"],
    "profile": ["plan/**", "codec/", "base/"],
    "command_line": ["plan/**"],
    "key": ["secure/key.h", "os/secret_file.h"],
    "codec": ["codec/", "kernels/simd.h", "base/"],
}

# Third-party headers that only these folders may include.
THIRD_PARTY = {
    "hwy/": ("src/kernels",),
    "openssl/": ("src/secure",),
    "gtest/": ("testing",),
    "gmock/": (),
    "benchmark/": (),
    "CLI/": ("tools",),
    "nlohmann/": ("tools", "src/observe", "src/dashboard", "bindings/torch"),
    "httplib": ("src/dashboard/http",),
    "torch/": ("bindings/torch",),
    "c10/": ("bindings/torch",),
    "ATen/": ("bindings/torch",),
    "pybind11/": ("bindings/torch",),
}


@dataclass(frozen=True)
class Absence:
    """A pattern that is searched for in `within` and allowed only in `allowed` (files or folders)."""

    rule: str
    pattern: str
    within: tuple[str, ...]
    allowed: tuple[str, ...]
    advice: str


LIBRARY = ("include", "src", "bindings")
ABSENCES = [
    Absence("getenv", r"\b(?:secure_)?getenv\s*\(", LIBRARY, ("src/base",),
            "the environment is read only in src/base: call environment() of base/options.h"),
    Absence("errno", r"\berrno\b|<cerrno>|<errno\.h>", LIBRARY, ("src/os",),
            "errno is seen only in src/os: put the system call there and return a Status"),
    Absence("intrinsics", r"<(?:[ixepsnt]mm|x86|avx|arm_neon|arm_sve)\w*\.h>|\b_mm(?:256|512)?_\w+", LIBRARY,
            ("src/kernels",), "SIMD lives in src/kernels: write a kernel there and call it"),
    Absence("clock", r"\b(?:steady|system|high_resolution)_clock::now\b|\bclock_gettime\b|\bgettimeofday\b"
            r"|\btime\s*\(\s*(?:nullptr|NULL|0)\s*\)|\b__rdtsc\b|\bstd::clock\s*\(",
            ("include", "src"), ("src/base/clock.cc",),
            "time is read only by SteadyClock: take a const Clock& (base/clock.h), so that the simulator can move it"),
    Absence("printing", r"\bstd::(?:cout|cerr|clog)\b|\b(?:printf|vprintf|puts|putchar|perror)\s*\("
            r"|\bv?fprintf\s*\(\s*std(?:out|err)\b|\bf(?:puts|write)\s*\([^;]*\bstd(?:out|err)\b"
            r"|\b(?:fmt|std)::print(?:ln)?\s*\(|\bSTD(?:OUT|ERR)_FILENO\b",
            ("include", "src"), ("src/base/log.cc",),
            "the library prints nothing: return what there is to say in a Result, or call log() of base/log.h"),
    Absence("release", r"\bTORCH_VERSION\w*|\bC10D_\w+_HAS_\w+|<torch/version\.h>",
            ("bindings",), ("bindings/torch/torch_release.h",),
            "torch's releases differ only in torch_release.h: name the difference there, and use the name"),
    Absence("abort", r"\bstd::(?:abort|exit|_Exit|quick_exit|terminate)\b|(?<![\w.>:~])(?:_exit|_Exit|quick_exit)\s*\("
            r"|(?<![\w.>:~])::(?:abort|exit)\s*\(|(?<=[;{})])\s*(?:abort\s*\(\s*\)|exit\s*\()"
            r"|\bassert\s*\(|<cassert>|<assert\.h>",
            ("include", "src"), ("src/base/log.cc",),
            "bad input and bad peers are errors, not ends: return a Failure, or QCCL_CHECK for a mistake of our own"),
]  # fmt: skip

# (file, variable) -> why this mutable global is allowed.
FORK_HANDLER = "a pthread_atfork handler has no argument to find its table by"
MUTABLE_GLOBALS = {
    ("src/os/fd.cc", "listed"): FORK_HANDLER,
    ("src/os/fd.cc", "generation"): FORK_HANDLER,
    ("src/os/fd.cc", "handler_installed"): FORK_HANDLER,
    ("src/kernels/simd.cc", "chosen"): "the SIMD dispatch pointer: every kernel call reads it, set once",
    ("src/bootstrap/launcher/pmi.cc", "once"): "what the launcher said: it says so once to a process",
    ("bindings/nccl/process.h", "own"): "NCCL's groups and last errors belong to the thread that calls",
    ("bindings/torch/work/callback_order.cc", "current"): "its callback runs here; torch passes none",
    ("bindings/torch/shared_job.cc", "registry"): "c10d calls a free function: (store, rank) -> job",
}

# Test headers that lie beside the sources.
TEST_HEADERS = (
    "src/base/expect_failure.h",
    "src/bootstrap/test_support.h",
    "src/codec/round_trip.h",
    "src/kernels/codec_kernel_contract.h",
    "src/kernels/device/job_case.h",
    "src/kernels/device/slice_oracle.h",
    "src/kernels/every_simd.h",
    "src/os/test_user.h",
    "src/secure/tls_pair.h",
)


@dataclass(frozen=True)
class Violation:
    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.rule}] {self.text}"


def is_test(path: Path) -> bool:
    return path.parts[0] in ("tests", "bench") or path.stem.endswith("_test") or path.as_posix() in TEST_HEADERS


def is_below(path: Path, places: tuple[str, ...]) -> bool:
    return any(path == Path(place) or Path(place) in path.parents for place in places)


def layer_of(path: Path) -> str | None:
    """The file, or the nearest folder above it, that MAY_INCLUDE names."""
    return str(path) if str(path) in MAY_INCLUDE else folder_of(path)


def folder_of(path: Path) -> str | None:
    """The nearest folder above the file that MAY_INCLUDE names, itself or as one of "folder/*"."""
    for place in path.parents:
        for name in (str(place), f"{place.parent}/*"):
            if name in MAY_INCLUDE:
                return name
    return None


def may_include(path: Path, layer: str, target: str) -> bool:
    if target.startswith("qccl/") or "/" not in target:
        return True
    folder = folder_of(Path("src", target))
    if Path("src", target).parent == path.parent or (folder == folder_of(path) and not str(folder).endswith("/*")):
        return True
    allowed = list(MAY_INCLUDE[layer])
    if layer == "tools":
        allowed += next((extra for word, extra in TOOL_EXTRAS.items() if path.stem.startswith(word)), [])
    if any(target.startswith(name.removesuffix("**")) for name in allowed if name.endswith("/**")):
        return True
    return target in allowed or (folder is not None and f"{folder.removeprefix('src/')}/" in allowed)


def rooms_in_cycles() -> list[str]:
    """The folders under src/ of which MAY_INCLUDE allows each, directly or not, to include itself by another."""
    rooms = [name.removeprefix("src/") for name in MAY_INCLUDE if name.startswith("src/") and "." not in name]
    reach = {room: {other for other in rooms if other != room and covers(room, other)} for room in rooms}
    for middle in rooms:
        for room in rooms:
            if middle in reach[room]:
                reach[room] |= reach[middle]
    return [room for room in rooms if room in reach[room]]


def covers(room: str, other: str) -> bool:
    """Whether a row allows its folder to include the other folder, or one file of it."""
    for name in MAY_INCLUDE[f"src/{room}"]:
        if name.endswith("/**") and (other + "/").startswith(name.removesuffix("**")):
            return True
        if name == f"{other}/" or (name.endswith(".h") and folder_of(Path("src", name)) == f"src/{other}"):
            return True
    return False


def is_of_program(root: Path, path: Path, target: str) -> bool:
    """Whether a source of the qccl program or of the extension includes one of its own headers: by the path from the
    root, or from bindings/torch."""
    if path.parts[0] == "tools":
        return target.startswith("tools/") and (root / target).is_file()
    return path.parts[:2] == ("bindings", "torch") and (root / "bindings" / "torch" / target).is_file()


def check_include(root: Path, path: Path, target: str) -> str | None:
    """Returns what is wrong with `#include "target"` in this file, if anything."""
    layer = layer_of(path)
    if layer is None:
        return "this folder is in no layer: add it to MAY_INCLUDE in scripts/check_layers.py"
    if is_of_program(root, path, target):
        return None
    if (root / path.parent / target).is_file():
        own_folder = path.parent.as_posix().removeprefix("src/")
        if not str(layer).startswith("src/") or "/" in target:
            return None
        return f'write "{own_folder}/{target}": includes name the folder'
    if not any((root / base / target).is_file() for base in ("include", "src")):
        return f"{target} is in neither include/ nor src/; other libraries' headers go in <>"
    if may_include(path, layer, target):
        return None
    allowed = ", ".join(["include/qccl", *MAY_INCLUDE[layer]])
    return f"{layer} may not include {target} (only {allowed}): move the code to a layer that may, or pass it in"


def check_angle_include(path: Path, target: str) -> str | None:
    layer = layer_of(path)
    if layer == "include/qccl" and ("/" in target or target.endswith(".h")):
        return f"public headers include standard headers only, not <{target}>: hide it behind the implementation"
    for prefix, places in THIRD_PARTY.items():
        if target.startswith(prefix) and not is_below(path, places):
            return f"<{target}> is for {' and '.join(places) or 'tests and benchmarks'} only"
    return None


def check_includes(root: Path, path: Path, code: str) -> list[Violation]:
    found = []
    for match in re.finditer(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", code, re.M):
        quote, target = match.groups()
        if quote == "<" or target.startswith(tuple(THIRD_PARTY)):
            message = check_angle_include(path, target)
        else:
            message = check_include(root, path, target)
        if message:
            found.append(Violation(path, code.count("\n", 0, match.start()) + 1, "include", message))
    return found


def check_absences(path: Path, code: str) -> list[Violation]:
    found = []
    for absence in ABSENCES:
        if not is_below(path, absence.within) or is_below(path, absence.allowed):
            continue
        for match in re.finditer(absence.pattern, code):
            start = match.start() + len(match.group()) - len(match.group().lstrip())
            text = f"{' '.join(match.group().split())}: {absence.advice}"
            found.append(Violation(path, code.count("\n", 0, start) + 1, absence.rule, text))
    return found


NOT_A_VARIABLE = re.compile(
    r"(?:using|typedef|friend|static_assert|namespace|concept|return|goto|asm|extern \")"
    r"|(?:template\b.*)?\b(?:class|struct|union|enum|concept|using)\b|.*\boperator\b"
)


def mutable_variable(statement: Statement) -> str | None:
    """The name of the mutable variable with static storage that this statement defines, if it does."""
    declaration = without_angles(statement.text)
    if not declaration or NOT_A_VARIABLE.match(declaration):
        return None
    declaration = re.split(r"(?<![=!<>])=(?!=)|\{", declaration)[0]
    words = re.findall(r"\w+", declaration)
    is_static = bool({"static", "thread_local"} & set(words))
    if statement.scope != "namespace" and not is_static:
        return None
    if "(" in declaration:
        literal_argument = re.search(r"\w\s*\(\s*(?:[-\d\"'&]|nullptr\b|true\b|false\b)", declaration)
        if statement.scope != "function" and not literal_argument:
            return None
        declaration = declaration.split("(")[0]
        words = re.findall(r"\w+", declaration)
    if len(set(words) - {"static", "inline", "extern", "thread_local", "const", "template"}) < 2:
        return None
    if "constexpr" in words or re.search(r"\*\s*const\b" if "*" in declaration else r"\bconst\b", declaration):
        return None
    return re.findall(r"\w+", declaration.split("[")[0])[-1]


def check_globals(path: Path, code: str, exceptions_used: set) -> list[Violation]:
    if not is_below(path, LIBRARY):
        return []
    found = []
    for statement in scan(code)[0]:
        name = mutable_variable(statement)
        if name is None:
            continue
        key = (path.as_posix(), name)
        if key in MUTABLE_GLOBALS:
            exceptions_used.add(key)
            continue
        text = f"{name} is a mutable global: give it an owner, or name it with its reason in MUTABLE_GLOBALS"
        found.append(Violation(path, statement.line, "mutable-global", text))
    return found


def check_file(root: Path, path: Path, exceptions_used: set) -> list[Violation]:
    if is_test(path):
        return []
    code = blank_literals((root / path).read_text())
    found = check_includes(root, path, code)
    found += check_absences(path, code)
    return found + check_globals(path, code, exceptions_used)


def check(root: Path) -> list[Violation]:
    found = []
    exceptions_used: set = set()
    for path in source_files(root):
        found += check_file(root, path, exceptions_used)
    for file, name in sorted(MUTABLE_GLOBALS.keys() - exceptions_used):
        if (root / file).exists():
            found.append(Violation(Path(file), 1, "mutable-global", f"{name} is gone: remove it from MUTABLE_GLOBALS"))
    for room in sorted(set(rooms_in_cycles()) - set(CYCLES)):
        text = f"MAY_INCLUDE allows a cycle through {room}: move what both need to a lower folder"
        found.append(Violation(Path(__file__).relative_to(Path(__file__).parent.parent), 1, "cycle", text))
    return found


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    found = check(root)
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
