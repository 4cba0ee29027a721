"""QCCL_REPLACE: programs that ask torch for another backend, or for none, get QCCL."""

import os
import subprocess
import sys
import textwrap
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import qccl
import qccl_autoload

LIMIT_SECONDS = 90


def run_program(folder, arguments, text, **variables):
    program = folder / "program.py"
    program.write_text(textwrap.dedent(text))
    command = [sys.executable, *arguments, str(program)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)


TRAIN = """
    import os, sys
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group({backend})
    model = DistributedDataParallel(torch.nn.Linear(300, 300))
    model(torch.randn(8, 300)).square().mean().backward()
    half = dist.new_group([0])
    dist.barrier()
    import qccl
    half = dist.get_backend(half) if dist.get_rank() == 0 else ""
    line = "%s %s %s\\n" % (dist.get_backend(), half, qccl.traffic().bytes_sent > 0)
    os.write(1, line.encode())  # one write: ranks share the pipe
    dist.destroy_process_group()
"""
BYTES = "qccl.traffic().bytes_sent > 0"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.mark.parametrize("backend", ['"gloo"', "", "dist.Backend.GLOO", '"cpu:gloo"', '"GLOO"'])
def test_an_unchanged_program_gets_qccl_under_torchrun(tmp_path, backend):
    done = run_program(tmp_path, TORCHRUN, TRAIN.format(backend=backend), QCCL_REPLACE="gloo")
    assert done.returncode == 0, done.stderr
    without = run_program(tmp_path, TORCHRUN, TRAIN.format(backend=backend).replace(BYTES, "True"))
    assert done.stdout.count("True") == 2 and sorted(done.stdout.split()) == sorted(without.stdout.split())


def test_without_the_variable_gloo_stays(tmp_path):
    done = run_program(tmp_path, TORCHRUN, TRAIN.format(backend='"gloo"').replace(BYTES, "1"))
    assert done.returncode == 0, done.stderr
    assert "gloo" in done.stdout and "qccl" not in done.stdout


def test_the_program_replaces_for_one_run_with_compression_and_arguments(tmp_path):
    program = TRAIN.format(backend='"gloo"') + "    print(sys.argv[1:])\n"
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    command = [
        sys.executable,
        *TORCHRUN,
        "-m",
        "qccl.replace",
        "--compression",
        "minmax:bits=8",
        str(path),
        "--lr",
        "1",
    ]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("True") == 2 and done.stdout.count("['--lr', '1']") == 2


COMPILED = """
    import os
    import torch, torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    import qccl
    dist.init_process_group("cpu:gloo,cuda:nccl")
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    model = torch.nn.Sequential(torch.nn.Linear(64, 200), torch.nn.Tanh(), torch.nn.Linear(200, 64))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    before = qccl.traffic().bytes_sent
    torch.compile(model, backend="aot_eager")(torch.randn(8, 64)).square().mean().backward()
    assert qccl.traffic().bytes_sent > before and model[0].weight.grad.to_local().any()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def summed(tensor):
        return torch.distributed._functional_collectives.all_reduce(2 * tensor, "sum", dist.group.WORLD) + 1

    line = f"{dist.get_backend()} {summed(torch.ones(3)).tolist()}\\n"
    os.write(1, line.encode())  # one write: ranks share the pipe
    dist.destroy_process_group()
"""


def test_fsdp2_and_compiled_programs_get_qccl_for_every_device(tmp_path):
    done = run_program(tmp_path, TORCHRUN, COMPILED, QCCL_REPLACE="gloo,nccl")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cpu:gloo,cuda:nccl [5.0, 5.0, 5.0]\n" * 2


def test_the_program_may_be_a_module(tmp_path):
    (tmp_path / "trainer").mkdir()
    # One write: ranks share the pipe.
    says = "    import os\n    os.write(1, f'{__name__} {sys.argv[1:]}\\n'.encode())\n"
    program = TRAIN.format(backend="") + says
    (tmp_path / "trainer" / "train.py").write_text(textwrap.dedent(program))
    command = [sys.executable, *TORCHRUN, "-m", "qccl.replace", "-m", "trainer.train", "--lr", "1"]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=tmp_path, capture_output=True,
                          text=True, timeout=LIMIT_SECONDS)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("True") == 2 and done.stdout.count("__main__ ['--lr', '1']") == 2


def test_a_mistyped_codec_ends_the_program_before_it_begins(tmp_path):
    done = run_program(tmp_path, ["-m", "qccl.replace", "--compression", "minmax:bit=8"], "print('begun')")
    assert done.returncode == 2 and done.stdout == ""
    assert "compression 'minmax:bit=8': unknown key 'bit'; allowed: none, " in done.stderr


SPAWN = """
    import os, tempfile
    import torch, torch.distributed as dist, torch.multiprocessing as mp

    def body(rank, store):
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2, 2, 2]
        import qccl
        line = f"{dist.get_backend()} {qccl.describe().split()[-1]}\\n"
        os.write(1, line.encode())  # one write: ranks share the pipe
        dist.destroy_process_group()

    if __name__ == "__main__":
        with tempfile.TemporaryDirectory() as folder:
            mp.start_processes(body, (os.path.join(folder, "store"),), nprocs=2, start_method="METHOD")
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("arguments", [[], ["-m", "qccl.replace"]])
def test_processes_that_a_program_starts_get_qccl_too(tmp_path, method, arguments):
    variables = {} if arguments else {"QCCL_REPLACE": "gloo"}
    done = run_program(tmp_path, arguments, SPAWN.replace("METHOD", method), **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["gloo", "gloo"] * 2


def test_a_name_that_cannot_be_replaced_is_refused():
    with pytest.raises(ValueError, match="QCCL_REPLACE=gloo,ucc: ucc cannot be replaced, only gloo, mpi, nccl"):
        qccl_autoload.replace("gloo,ucc")
    assert dist.Backend("gloo") == "gloo"


def replaced(body):
    def with_replacement(rank):
        original = dist.Backend.__new__
        qccl_autoload.replace("gloo")
        qccl_autoload.replace("gloo")  # twice is once
        try:
            return body(rank)
        finally:
            dist.Backend.__new__ = original

    return with_replacement


def test_device_meshes_and_new_groups_by_name_get_qccl():
    @replaced
    def body(rank):
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        group = dist.new_group([0, 1], backend="gloo", timeout=timedelta(seconds=20))
        assert dist.get_backend(group) == "gloo"
        assert dist.get_backend(mesh.get_group()) == "qccl", "the program of this test asked for it"
        backend = group._get_backend(torch.device("cpu"))
        assert qccl.describe(group).endswith(", qccl in place of gloo")
        assert "in place of" not in qccl.describe(mesh.get_group())
        assert backend.name() == "qccl" and dist.get_backend_config(group) == "cpu:qccl,cuda:qccl"
        gathered = [None, None]
        dist.all_gather_object(gathered, {"rank": rank}, group=group)
        assert gathered == [{"rank": 0}, {"rank": 1}]

    run_ranks(body)


def test_what_qccl_does_not_serve_names_it():
    # torch's own from 2.15 on; the releases before it take gloo by its name.
    takes_any_backend = hasattr(torch._C._distributed_c10d.Backend, "supports_abort_hooks")

    @replaced
    def body(rank):
        if takes_any_backend:
            dist.monitored_barrier()
        else:
            with pytest.raises(ValueError, match="monitored_barrier"):
                dist.monitored_barrier()
        with pytest.raises(NotImplementedError, match="Float8_e4m3fn is not supported by the qccl backend"):
            dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn))
        # torch itself answers calls with meta tensors, without any backend.
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        with pytest.raises(ValueError, match="needs tensors on the CPU or a CUDA device, got one on meta"):
            backend.allreduce([torch.ones(2, device="meta")])

    run_ranks(body)


def test_mpi_by_name_finds_its_ranks_in_the_launchers_variables(tmp_path):
    text = """
        import torch, torch.distributed as dist
        dist.init_process_group("mpi")
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        print(dist.get_backend(), int(tensor.item()), flush=True)
        dist.destroy_process_group()
    """
    variables = {"QCCL_REPLACE": "mpi", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1",
                 "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}  # fmt: skip
    done = run_program(tmp_path, [], text, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["mpi", "1"]
