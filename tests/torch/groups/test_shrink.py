"""Groups that go on with the ranks that live: qccl.shrink(), qccl.failed(), torch's dist.shrink_group()."""

import os
import signal
import threading

import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT, run_processes, run_ranks, values_of

import qccl

LOST = (dist.DistNetworkError, dist.DistBackendError)


def sum_of(group=None):
    tensor = torch.full((1000,), float(dist.get_rank(group) + 1))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def sum_until_failure():
    with pytest.raises(LOST):
        while True:
            dist.all_reduce(torch.ones(100_000))


@pytest.mark.parametrize("killed", [0, 2])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_survivors_of_a_kill_go_on_as_the_default_group(killed, transport, tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 4)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=4, timeout=TIMEOUT)
        other = dist.new_group([0, 1, 2, 3])
        dist.barrier(other)
        if rank == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        sum_until_failure()
        assert {(lost.rank, lost.grade) for lost in qccl.failed()} <= {(killed, "gone")}, "a peer may have told of it"
        group = qccl.shrink()
        assert group is dist.group.WORLD and dist.get_backend() == "qccl"
        assert (dist.get_rank(), dist.get_world_size()) == (rank - int(rank > killed), 3)
        assert sum_of() == 6
        pair = dist.new_group([0, 2])
        if dist.get_rank() != 1:
            assert sum_of(pair) == 3
        dist.barrier()
        assert qccl.failed() == []
        gathered = [None] * 3
        dist.all_gather_object(gathered, rank)
        dist.destroy_process_group()
        return gathered

    outcomes = run_processes(body, 4, environment={"QCCL_TRANSPORT": transport})
    left = [rank for rank in range(4) if rank != killed]
    assert values_of([outcomes[rank] for rank in left]) == [left] * 3


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_survivors_repeat_a_failed_sum_with_what_they_gave_and_owe(transport, tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 3)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=3, timeout=TIMEOUT)
        feedback = qccl.ErrorFeedback(500_000)
        gradient = torch.linspace(-1, 1, 500_000) * (rank + 1)
        while True:
            values, owed, counter = gradient.clone(), feedback.residual.clone(), feedback.counter
            if rank == 1 and counter == 10:
                threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGKILL)).start()
            try:
                qccl.all_reduce(values, compression="minmax:bits=4", error_feedback=feedback, keep_input=True)
            except LOST:
                break
        assert torch.equal(values, gradient)
        assert torch.equal(feedback.residual, owed) and feedback.counter == counter
        qccl.shrink()
        newest = torch.tensor([counter])
        dist.all_reduce(newest, dist.ReduceOp.MAX)
        assert newest.item() - counter in (0, 1)
        with pytest.raises(dist.DistBackendError, match="after"):
            feedback.settle(counter + 2)
        feedback.settle(newest.item())
        qccl.all_reduce(values, compression="minmax:bits=4", error_feedback=feedback, keep_input=True)
        assert feedback.counter == newest.item() + 1
        dist.barrier()
        dist.destroy_process_group()

    outcomes = run_processes(body, 3, environment={"QCCL_TRANSPORT": transport})
    values_of([outcomes[0], outcomes[2]])


def test_a_group_leaves_a_rank_out_without_a_failure():
    def body(rank):
        group = dist.new_group([1, 2, 3])
        assert rank == 0 or sum_of(group) == 6
        if rank in (1, 3):
            smaller = qccl.shrink(group, without=[1])
            assert dist.get_process_group_ranks(smaller) == [1, 3] and sum_of(smaller) == 3
            with pytest.raises(ValueError, match="the calling rank"):
                qccl.shrink(smaller, without=[dist.get_rank(smaller)])
        assert sum_of() == 10, "the default group goes on"
        if rank == 2:
            with pytest.raises(dist.DistBackendError, match="without this rank"):
                sum_of(group)

    run_ranks(body, 4)


def test_shrink_group_of_torch_takes_qccl():
    def body(rank):
        assert sum_of() == 6
        if rank != 1:
            dist.shrink_group([1])
            assert dist.get_world_size() == 2 and dist.get_rank() == rank // 2
            assert sum_of() == 3
        return None

    run_ranks(body, 3)


def test_shrink_group_names_ranks_that_are_lost_besides(tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 5)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=5, timeout=TIMEOUT)
        dist.barrier()
        if rank >= 3:
            os.kill(os.getpid(), signal.SIGKILL)
        sum_until_failure()
        with pytest.raises(dist.DistBackendError, match="lost as well: rank 4"):
            dist.shrink_group([3])
        dist.shrink_group([3, 4])
        assert sum_of() == 6
        dist.destroy_process_group()

    values_of(run_processes(body, 5)[:3])
