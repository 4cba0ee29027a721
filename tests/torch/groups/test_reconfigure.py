"""c10d's reconfigure regime: a process group that gets new ranks while the program keeps it."""

import inspect
import os
import signal

import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT, run_processes, values_of

pytestmark = pytest.mark.skipif(
    "enable_reconfigure" not in inspect.signature(dist.init_process_group).parameters,
    reason="torch has the reconfigure regime from 2.15 on",
)


def begin(rank, file, world):
    """The handles of all processes in the order of `rank`. They meet in a store of their own, as by a coordinator."""
    store = dist.FileStore(str(file), world)
    dist.init_process_group("qccl", store=store, rank=rank, world_size=world, timeout=TIMEOUT, enable_reconfigure=True)
    coordinator = dist.PrefixStore("coordinator", store)
    coordinator.set(str(rank), dist.distributed_c10d._get_reconfigure_handle())
    return [coordinator.get(str(other)).decode() for other in range(world)]


def reconfigure(uuid, handles):
    dist.distributed_c10d._reconfigure(uuid=uuid, handles=handles, timeout=TIMEOUT).wait()


def total():
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    return tensor[-1].item()


def test_a_list_gives_ranks_by_position_and_a_set_by_how_they_began(tmp_path):
    def body(rank):
        handles = begin(rank, tmp_path / "store", 3)
        assert dist.distributed_c10d._supports_reconfigure()
        with pytest.raises(dist.DistBackendError, match="has no ranks: call reconfigure"):
            dist.barrier()
        reconfigure(1, handles[::-1])
        assert (dist.get_rank(), dist.get_world_size(), total()) == (2 - rank, 3, 3)
        reconfigure(2, set(handles))
        assert (dist.get_rank(), dist.get_world_size(), total()) == (rank, 3, 3)
        dist.destroy_process_group()

    values_of(run_processes(body, 3))


def test_survivors_go_on_and_a_newcomer_joins(tmp_path):
    def body(rank):
        handles = begin(rank, tmp_path / "store", 4)
        if rank < 3:  # rank 3 comes later
            reconfigure(1, handles[:3])
            assert total() == 3
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            with pytest.raises((dist.DistNetworkError, dist.DistBackendError)):
                while True:
                    dist.all_reduce(torch.ones(100_000))
        others = [handle for number, handle in enumerate(handles) if number != 1]
        reconfigure(2, others)
        assert (dist.get_rank(), total()) == (others.index(handles[rank]), 3)
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        dist.destroy_process_group()

    outcomes = run_processes(body, 4)
    values_of([outcomes[rank] for rank in (0, 2, 3)])


def test_refusals_leave_the_group_as_it_is(tmp_path):
    def body(rank):
        handles = begin(rank, tmp_path / "store", 2)
        reconfigure(1, handles)
        with pytest.raises(ValueError, match="has used uuid 1 already"):
            reconfigure(1, handles)
        with pytest.raises(ValueError, match="leave out this rank's own"):
            reconfigure(2, [handle for handle in handles if handle != handles[rank]])
        with pytest.raises(ValueError, match="listed twice"):
            reconfigure(2, [handles[rank], *handles])
        assert total() == 2
        reconfigure(2, handles)
        assert total() == 2
        dist.destroy_process_group()

    values_of(run_processes(body, 2))


def test_hooks_stay_and_times_are_estimated(tmp_path):
    def body(rank):
        handles = begin(rank, tmp_path / "store", 2)
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert backend.supports_abort_hooks and backend.supports_completion_hooks
        failures = []
        backend.register_abort_hook(7, lambda: failures.append(rank))
        recorder = dist.distributed_c10d.FlightRecorderHook.attach(dist.group.WORLD, [0, 1])  # hears of completions
        with pytest.raises(ValueError, match="has an abort hook 7 already"):
            backend.register_abort_hook(7, lambda: None)
        for uuid in (1, 2):
            reconfigure(uuid, handles)
            assert total() == 2
        assert recorder is not None
        with dist.distributed_c10d._time_estimator() as estimate:
            total()
        assert estimate.estimated_time > 0
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises((dist.DistNetworkError, dist.DistBackendError)):
            while True:
                total()
        assert failures == [0]

    values_of(run_processes(body, 2)[:1])


def test_the_living_shrink_it(tmp_path):
    def body(rank):
        handles = begin(rank, tmp_path / "store", 3)
        reconfigure(1, handles)
        assert total() == 3
        if rank == 1:
            return
        dist.shrink_group([1])
        assert (dist.get_rank(), dist.get_world_size(), total()) == (rank // 2, 2, 2)
        dist.destroy_process_group()

    values_of(run_processes(body, 3))


def test_a_group_without_reconfigure_does_not_support_it(tmp_path):
    def body(rank):
        dist.init_process_group("qccl", store=dist.FileStore(str(tmp_path / "store"), 2), rank=rank, world_size=2)
        assert not dist.distributed_c10d._supports_reconfigure()
        dist.destroy_process_group()

    values_of(run_processes(body, 2))
