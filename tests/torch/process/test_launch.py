"""Whole programs under launchers, and what happens at the end of a process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from ranks import run_processes

ROOT = Path(__file__).resolve().parents[3]
QCCL = ROOT / "build" / "qccl"
LIMIT_SECONDS = 60


def run_program(arguments, **variables):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        arguments, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )


def write_program(folder, text):
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def torchrun(*arguments):
    return [sys.executable, "-m", "torch.distributed.run", *arguments]


TRAINING = """
    import os, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("qccl")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(300, 300))
    for _ in range(3):
        model(torch.randn(8, 300)).square().mean().backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    everyone = [torch.empty_like(gradients) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, gradients)
    assert all(torch.equal(gradients, other) for other in everyone)
    print(f"trained on {dist.get_world_size()} ranks", flush=True)
    dist.destroy_process_group()
"""


def test_torchrun_finds_the_backend_by_name_and_trains(tmp_path):
    program = write_program(tmp_path, TRAINING)
    done = run_program(torchrun("--standalone", "--nproc-per-node=2", program), QCCL_COMPRESSION="minmax:bits=4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained on 2 ranks") == 2


def test_qccl_run_trains(tmp_path):
    assert QCCL.exists(), f"{QCCL} is not built: run `make build`"
    program = write_program(tmp_path, TRAINING)
    done = run_program([str(QCCL), "run", "-n", "2", "--", sys.executable, program])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained on 2 ranks") == 2


def test_torchrun_restart_does_not_meet_keys_of_the_first_attempt(tmp_path):
    program = write_program(
        tmp_path,
        """
        import os, signal, torch, torch.distributed as dist
        dist.init_process_group("qccl")
        tensor = torch.ones(100_000)
        dist.all_reduce(tensor)
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(tensor)
        restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
        os.write(1, f"restart {restart} sum {tensor[0].item()}\\n".encode())
        dist.destroy_process_group()
        """,
    )
    done = run_program(torchrun("--standalone", "--nproc-per-node=2", "--max-restarts=1", program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("restart 1 sum 4.0") == 2


ENDINGS = {
    "without destroy": "",
    "with work in flight": "work = dist.all_reduce(torch.ones(1_000_000), async_op=True)",
    "with a callback that takes long": """
        import time
        work = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(lambda _: time.sleep(0.5))""",
    "with a callback that outlives its group": """
        import atexit, threading
        ending = threading.Event()
        peer = 1 - int(sys.argv[1])
        work = dist.irecv(torch.zeros(10), peer)
        future = work.get_future().then(lambda _: (ending.wait(), sum(range(3_000_000))))
        dist.barrier()  # a callback of a future that is done would run in this thread
        dist.send(torch.ones(10), peer)
        dist.destroy_process_group()
        atexit.register(ending.set)""",
    "with groups and tensors in globals": "group = dist.new_group(); dist.all_reduce(torch.ones(5), group=group)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_process_may_end(ending, tmp_path):
    lines = (
        "import sys, torch, torch.distributed as dist",
        f"store = 'file://{tmp_path}/store'",
        "dist.init_process_group('qccl', init_method=store, rank=int(sys.argv[1]), world_size=2)",
        "dist.all_reduce(torch.ones(10))",
        textwrap.dedent(ENDINGS[ending]).strip(),
        "print('end', flush=True)",
    )
    program = write_program(tmp_path, "\n".join(lines))
    outcomes = run_processes(lambda rank: run_program([sys.executable, program, str(rank)]), 2)
    for outcome in outcomes:
        assert outcome.finished and outcome.error is None, outcome.trace
        assert outcome.value.returncode == 0, outcome.value.stderr
        assert outcome.value.stdout == "end\n"
        assert "terminate" not in outcome.value.stderr and "Traceback" not in outcome.value.stderr


def test_exception_on_one_rank_ends_the_job_with_that_exception(tmp_path):
    program = write_program(
        tmp_path,
        """
        import torch, torch.distributed as dist
        dist.init_process_group("qccl")
        if dist.get_rank() == 1:
            raise ValueError("the user's mistake")
        dist.all_reduce(torch.ones(10))
        """,
    )
    done = run_program(torchrun("--standalone", "--nproc-per-node=2", program))
    assert done.returncode != 0
    assert "ValueError: the user's mistake" in done.stderr


def test_spawned_processes_train():
    program = textwrap.dedent(
        """
        import sys, tempfile, torch, torch.distributed as dist, torch.multiprocessing as mp
        def body(rank, folder):
            dist.init_process_group("qccl", init_method=f"file://{folder}/store", rank=rank, world_size=2)
            dist.all_reduce(torch.ones(10))
            dist.destroy_process_group()
        if __name__ == "__main__":
            with tempfile.TemporaryDirectory() as folder:
                mp.spawn(body, (folder,), nprocs=2)
        """
    )
    with_file = run_processes(lambda _rank: _run_text(program), 1)[0]
    assert with_file.error is None and with_file.value.returncode == 0, with_file


def _run_text(program):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return run_program([sys.executable, write_program(Path(folder), program)])


def test_other_torch_version_is_refused_with_both_versions():
    program = "import torch; torch.__version__ = '9.9.9'; import qccl"
    done = run_program([sys.executable, "-c", program])
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: qccl was built for torch ") and "torch 9.9.9" in last


def test_torch_of_another_patch_release_and_accelerator_is_taken():
    program = "import torch; torch.__version__ = '.'.join(torch.__version__.split('.')[:2]) + '.99+cu999'; import qccl"
    assert run_program([sys.executable, "-c", program + "; print('in')"]).stdout == "in\n"


def test_importing_torch_neither_loads_nor_needs_the_extension():
    program = "import sys, torch, torch.distributed as d; print('qccl._C' in sys.modules, d.Backend('qccl'))"
    done = run_program([sys.executable, "-c", program])
    assert done.stdout.split() == ["False", "qccl"], done.stderr
