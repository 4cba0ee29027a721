"""What NCCL's interface adds to a call on host memory: ncclAllReduce() beside `qccl perf`, 2 ranks.

  .venv/bin/python bench/micro/nccl_cost.py

`qccl perf` and ncclAllReduce() by two processes through libqccl_nccl.so run in turns; the table has the median of
each and the median and quartiles of the ratios of neighbours. Sums of float32, in place.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "qccl"
LIBRARY = ROOT / "build" / "libqccl_nccl.so"
FLOAT32, SUM = 7, 0  # of ncclDataType_t and ncclRedOp_t
UNIQUE_ID_BYTES = 128


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * UNIQUE_ID_BYTES),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 64 << 10, 4 << 20])
    parser.add_argument("--rank-of-nccl", nargs=3, metavar=("FOLDER", "BYTES", "CALLS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of_nccl:
        folder, size, calls = arguments.rank_of_nccl
        return be_rank(Path(folder), int(size), int(calls))
    print(f"{'bytes':>10}  {'C++ (us)':>9}  {'NCCL (us)':>9}  ratio of neighbours (quartiles)")
    for size in arguments.sizes:
        calls = 2000 if size < 1 << 20 else 100
        pairs = [(time_of_perf(size, calls), time_of_nccl(size, calls)) for _ in range(arguments.rounds)]
        ratios = [nccl / own for own, nccl in pairs]
        own, nccl = (statistics.median(times) for times in zip(*pairs, strict=True))
        low, ratio, high = statistics.quantiles(ratios, n=4)
        print(f"{size:10}  {own:9.1f}  {nccl:9.1f}  {ratio:.2f} ({low:.2f} to {high:.2f})", flush=True)


def time_of_perf(size: int, calls: int) -> float:
    """Median microseconds of a call in place."""
    with tempfile.TemporaryDirectory(prefix="qccl-bench-") as folder:
        file = Path(folder) / "perf.json"
        command = [PROGRAM, "perf", "all_reduce", "-g", 2, "-b", size, "-e", size, "-n", calls, "-w", 20, "-c", 0]
        run([*command, "--json", file])
        entries = json.loads(file.read_text())["results"]
        return next(entry["time_us"]["median"] for entry in entries if entry["in_place"])


def time_of_nccl(size: int, calls: int) -> float:
    with tempfile.TemporaryDirectory(prefix="qccl-bench-") as folder:
        os.mkfifo(Path(folder) / "id")
        rank = [sys.executable, __file__, "--rank-of-nccl", folder, size, calls]
        return float(run([PROGRAM, "run", "-n", 2, "--", *rank]))


def run(command: list[object]) -> str:
    environment = {**os.environ, "QCCL_COMPRESSION": "none"}
    words = [str(word) for word in command]
    return subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def be_rank(folder: Path, size: int, calls: int) -> None:
    """Rank 0 prints the median microseconds of a call."""
    rank = int(os.environ["RANK"])
    library = ctypes.CDLL(str(LIBRARY))
    comm = ctypes.c_void_p()
    succeed(library.ncclCommInitRank(ctypes.byref(comm), 2, id_of(library, folder, rank), rank))
    buffer = (ctypes.c_char * size)()
    address = ctypes.addressof(buffer)
    words = ctypes.c_void_p(address), ctypes.c_void_p(address), ctypes.c_size_t(size // 4), FLOAT32, SUM, comm, None
    taken = []
    for _ in range(20 + calls):
        start = time.perf_counter()
        succeed(library.ncclAllReduce(*words))
        taken.append(time.perf_counter() - start)
    if rank == 0:
        print(1e6 * statistics.median(taken[20:]))
    succeed(library.ncclCommDestroy(comm))


def id_of(library: ctypes.CDLL, folder: Path, rank: int) -> UniqueId:
    """Rank 0's, through a pipe."""
    if rank == 1:
        return UniqueId.from_buffer_copy((folder / "id").read_bytes())
    unique = UniqueId()
    succeed(library.ncclGetUniqueId(ctypes.byref(unique)))
    (folder / "id").write_bytes(bytes(unique))
    return unique


def succeed(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"NCCL's interface returned {result}")


if __name__ == "__main__":
    main()
