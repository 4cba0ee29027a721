"""Runs an unchanged program with QCCL in place of the backend that it asks for.

    python -m qccl.replace --backend gloo --compression minmax:bits=8 train.py --epochs 3
    torchrun --nproc-per-node 4 -m qccl.replace --backend gloo train.py

The same without this program: QCCL_REPLACE=gloo QCCL_COMPRESSION=minmax:bits=8 python train.py --epochs 3

On a machine with a GPU, torch takes nccl for a program that names no backend: replace "gloo,nccl" there.
"""

import argparse
import os
import runpy
import sys

import qccl
import qccl_autoload


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m qccl.replace", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="gloo", help="what to replace: gloo, mpi, nccl, several with commas")
    parser.add_argument(
        "--compression", help="codec of DDP's and FSDP's gradients, as QCCL_COMPRESSION (default: none)"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module's name")
    parser.add_argument("program", help="the Python program, with its arguments behind it")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        qccl.Options(compression=options.compression)
        qccl_autoload.replace(options.backend)
    except ValueError as error:
        parser.error(str(error))
    os.environ["QCCL_REPLACE"] = options.backend  # for the processes that the program starts
    if options.compression:
        os.environ["QCCL_COMPRESSION"] = options.compression
    sys.argv = [options.program, *options.arguments]
    if options.module:
        sys.path[0] = os.getcwd()
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(options.program))
        runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main()
