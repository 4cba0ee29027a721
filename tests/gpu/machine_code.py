"""The machine code of kernels, as NVIDIA's disassembler writes it (nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm).

    python tests/gpu/machine_code.py [build/device_kernels/cubins.fatbin]

prints what test_machine_code.py holds about each kernel.
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

TOOLS = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"

# A division or root is a few instructions in place, and a call of a function of the compiler's for what they can't do.
# By a word of that function's name: the fused operations in place, on float32 and on float64.
FUSED_IN_PLACE = {
    "div_rn_noftz_f32": (5, 0),
    "rcp_rn_f32": (2, 0),
    "div_rn_f64": (1, 7),
    "dsqrt_rn_f64": (0, 5),
    "div_u64": (0, 0),
}

_FUNCTION = re.compile(r"\s*\.type\s+(\S+?),@function")
_INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")
_USAGE = re.compile(r"Function (\w+):\s+REG:(\d+) STACK:(\d+)")
_OF_COMPILER = re.compile(r"__internal_\d+_\$__cuda_sm\d+x?_(\w+)")


@dataclass
class Function:
    """The instructions of a function, without what it calls."""

    name: str
    operations: Counter[str] = field(default_factory=Counter)
    called: Counter[str] = field(default_factory=Counter)  # functions of the compiler's

    def count(self, pattern: str) -> int:
        return sum(count for operation, count in self.operations.items() if re.fullmatch(pattern, operation))

    @property
    def is_of_compiler(self) -> bool:
        return _OF_COMPILER.search(self.name) is not None

    @property
    def spills(self) -> int:
        """Stores to the stack."""
        return self.count(r"STL(\..*)?")

    @property
    def wide_loads(self) -> int:
        """Of 16 bytes, from memory that is not the block's own."""
        return self.count(r"LDG?\.E.*\.128(\..*)?")

    @property
    def wide_stores(self) -> int:
        return self.count(r"STG?\.E.*\.128(\..*)?")

    @property
    def fused(self) -> tuple[int, int]:
        """Fused operations: on float32 (and on pairs and halves, which nothing here computes with), and on float64."""
        return self.count(r"[FH]FMA2?(\..*)?"), self.count(r"DFMA(\..*)?")

    @property
    def fused_by_divisions(self) -> tuple[int, int]:
        """Those of its divisions and roots."""
        costs = [(self.called[name], cost_of(name)) for name in self.called]
        return sum(calls * cost[0] for calls, cost in costs), sum(calls * cost[1] for calls, cost in costs)


@dataclass(frozen=True)
class Usage:
    registers: int
    stack: int  # bytes


@dataclass
class Cubin:
    architecture: str  # "sm_90"
    functions: dict[str, Function]
    usage: dict[str, Usage]  # of kernels


def cost_of(called: str) -> tuple[int, int]:
    if not re.search("div|rcp|sqrt", called):
        return 0, 0
    for word, cost in FUSED_IN_PLACE.items():
        if called.startswith(word):
            return cost
    raise ValueError(f"FUSED_IN_PLACE does not say what {called} stands for")


def read(image: Path) -> list[Cubin]:
    """The cubins of an image: one, or those of a fat binary."""
    cubins = []
    with tempfile.TemporaryDirectory(prefix="qccl-sass-") as folder:
        _run("cuobjdump", "-xelf", "all", image.resolve(), folder=folder)
        for cubin in sorted(Path(folder).glob("*.cubin")):
            architecture = re.search(r"sm_\d+\w*", cubin.name)
            assert architecture, cubin.name
            usage = _USAGE.findall(_run("cuobjdump", "-res-usage", cubin, folder=folder))
            cubins.append(
                Cubin(
                    architecture[0],
                    parse(_run("nvdisasm", "-c", cubin, folder=folder)),
                    {name: Usage(int(registers), int(stack)) for name, registers, stack in usage},
                )
            )
    return cubins


def parse(text: str) -> dict[str, Function]:
    functions: dict[str, Function] = {}
    function = Function("")
    for line in text.splitlines():
        begin = _FUNCTION.match(line)
        instruction = _INSTRUCTION.match(line)
        if begin:
            function = functions[begin[1]] = Function(begin[1])
        elif instruction and not is_constant(instruction[1], instruction[2]):
            function.operations[instruction[1]] += 1
            called = _OF_COMPILER.search(instruction[2]) if instruction[1].startswith("CALL") else None
            if called:
                function.called[called[1]] += 1
    return functions


def is_constant(operation: str, operands: str) -> bool:
    """HFMA2 R4, -RZ, RZ, 1, 2: the compiler's way to write a constant."""
    return operation.startswith("HFMA2") and re.search(r"-RZ, RZ,", operands) is not None


def _run(tool: str, *words: object, folder: str) -> str:
    command = [str(word) for word in (TOOLS / tool, *words)]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=250).stdout


def main() -> None:
    image = Path(sys.argv[1] if len(sys.argv) > 1 else "build/device_kernels/cubins.fatbin")
    for cubin in read(image):
        for name, usage in sorted(cubin.usage.items()):
            body = cubin.functions[name]
            print(
                f"{cubin.architecture} {name}: {usage.registers} registers, {usage.stack} bytes of stack, "
                f"{body.spills} spills, 16 bytes at once: {body.wide_loads} loads, {body.wide_stores} stores; "
                f"{sum(body.operations.values())} instructions"
            )


if __name__ == "__main__":
    main()
