"""What torch 2.14 and 2.15 added to a backend: hooks, gather_single(), options of its own for a child, timeouts."""

import os
import pickle
import signal
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT, run_processes, run_ranks, values_of

import qccl

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d.Backend, "supports_abort_hooks"), reason="torch has these from 2.15 on"
)


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def test_an_abort_hook_runs_before_the_failure_is_thrown(tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 2)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=2, timeout=TIMEOUT)
        assert backend().supports_abort_hooks
        runs = []
        backend().register_abort_hook(7, lambda: runs.append(dist.get_rank()))
        backend().register_abort_hook(8, lambda: runs.append("removed"))
        backend().unregister_abort_hook(8)
        with pytest.raises(ValueError, match="has an abort hook 7 already"):
            backend().register_abort_hook(7, lambda: None)
        dist.barrier()
        assert runs == []
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises((dist.DistNetworkError, dist.DistBackendError)):
            while True:
                dist.all_reduce(torch.ones(100_000))
        assert runs == [0]
        with pytest.raises((dist.DistNetworkError, dist.DistBackendError)):
            dist.all_reduce(torch.ones(1))
        assert runs == [0], "once"

    values_of(run_processes(body, 2)[:1])


def test_torchs_flight_recorder_hears_of_the_ends():
    def body(rank):
        hook = dist.distributed_c10d.FlightRecorderHook.attach(dist.group.WORLD, [0, 1])
        dist.all_reduce(torch.ones(10))
        dist.all_reduce(torch.ones(20), async_op=True).wait()
        dist.barrier()
        assert hook is not None
        recorded = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())
        return [entry["profiling_name"] for entry in recorded["entries"]]

    variables = {"TORCH_FR_BUFFER_SIZE": "100", "TORCH_NCCL_TRACE_BUFFER_SIZE": "100"}
    for names in run_ranks(body, environment=variables):
        assert [name.partition(":")[2] for name in names] == ["all_reduce", "all_reduce", "barrier"]


def test_a_work_knows_its_timeout():
    def body(rank):
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=5)
        options.asyncOp = True
        work = backend().allreduce([torch.ones(1)], options)
        work.wait()
        assert work.timeout == timedelta(seconds=5)

    run_ranks(body)


def test_an_ephemeral_timeout_ends_with_the_first_operation_that_began_with_it():
    def body(rank):
        other = dist.new_group(backend="gloo")
        slow, quick = (dist.new_group(timeout=timedelta(seconds=1)) for _ in range(2))
        message, tensor = torch.ones(10), torch.ones(10)
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=2)
        options.asyncOp = True
        if rank == 0:
            slow._add_ephemeral_timeout(timedelta(seconds=25))
            first = dist.irecv(message, src=1, group=slow)
            second = slow.allreduce([tensor], options)
            assert (first.timeout, second.timeout) == (timedelta(seconds=26), timedelta(seconds=27))
            with pytest.raises(dist.DistNetworkError, match="the deadline of 1 s passed"):
                dist.barrier(quick)  # begun later, with the group's timeout
            dist.barrier(other)
        else:
            dist.barrier(other)
            first = dist.isend(message, dst=0, group=slow)
            second = slow.allreduce([tensor], options)
        first.wait()
        second.wait()
        if rank == 0:
            with pytest.raises(dist.DistNetworkError, match="the deadline of 1 s passed"):
                dist.all_reduce(tensor, group=slow)  # uses the group's timeout again
        dist.barrier(other)

    run_ranks(body)


def test_a_child_inherits_its_parents_compression_or_has_its_own():
    def sent(group):
        before = qccl.traffic(group).bytes_sent
        dist.all_reduce(torch.ones(1 << 18), group=group)
        return (qccl.traffic(group).bytes_sent - before) / (1 << 20)

    def body(rank):
        assert sent(dist.split_group(split_ranks=[[0, 1]])) < 1 / 3
        own = qccl.Options(compression="int:bits=4", timeout=timedelta(seconds=7))
        assert sent(dist.split_group(split_ranks=[[0, 1]], pg_options=own)) < 1 / 6

    run_ranks(body, pg_options=qccl.Options(compression="int:bits=8"), environment={"QCCL_TRANSPORT": "tcp"})


def test_a_child_has_options_of_its_own():
    def body(rank):
        own = backend().options
        before = (own.group_name, own._timeout)
        child = dist.split_group(split_ranks=[[0, 1]], timeout=timedelta(seconds=7))
        assert (own.group_name, own._timeout) == before
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=child)
        assert tensor.item() == 2

    run_ranks(body)


@pytest.mark.parametrize("root", [0, 1])
def test_gather_single_writes_one_tensor(root):
    def body(rank):
        part = torch.arange(3.0) + 10 * rank
        whole = torch.zeros(2, 3) if rank == root else None
        dist.gather_single(part, whole, dst=root)
        if rank == root:
            assert whole.tolist() == [[0, 1, 2], [10, 11, 12]]
        wrong = torch.zeros(5) if rank == root else None
        if rank == root:
            with pytest.raises(ValueError):
                dist.gather_single(part, wrong, dst=root)

    run_ranks(body)
