"""Failures: mistaken calls, lost ranks, aborts. Errors are torch.distributed's types with QCCL's text."""

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import run_processes, run_ranks, values_of

import qccl

SOON_SECONDS = 15.0


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_mismatched_counts_fail_on_every_rank_with_both_calls(transport):
    def body(rank):
        with pytest.raises(dist.DistBackendError) as caught:
            dist.all_reduce(torch.ones(1000 if rank == 1 else 2000))
        assert "1000" in str(caught.value) and "2000" in str(caught.value)
        with pytest.raises(dist.DistBackendError) as again:
            dist.all_reduce(torch.ones(3))
        assert "1000" in str(again.value) and "2000" in str(again.value), "the group's first failure"

    run_ranks(body, 3, environment={"QCCL_TRANSPORT": transport})


def test_mismatched_operations_types_and_compression_fail_on_every_rank():
    def fails(call):
        with pytest.raises(dist.DistBackendError):
            call()

    def body(rank):
        groups = [dist.new_group() for _ in range(3)]
        tensor = torch.ones(100_000)
        fails(lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM, group=groups[0]))
        fails(lambda: dist.all_reduce(tensor.double() if rank else tensor, group=groups[1]))
        fails(lambda: dist.barrier(groups[2]) if rank else dist.all_reduce(tensor, group=groups[2]))
        dist.all_reduce(tensor)
        assert tensor[0].item() == 2, "other groups go on"

    run_ranks(body)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_killed_rank_fails_the_others_soon_and_is_named(transport, tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 3)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=3, timeout=timedelta(seconds=300))
        dist.barrier()
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        started = time.monotonic()
        error = None
        try:
            while True:
                dist.all_reduce(torch.ones(100_000))
        except dist.DistError as caught:
            error = caught
        return type(error).__name__, str(error), time.monotonic() - started

    outcomes = run_processes(body, 3, environment={"QCCL_TRANSPORT": transport})
    assert outcomes[2].exit_code == -signal.SIGKILL
    for outcome in outcomes[:2]:
        assert outcome.finished and outcome.error is None, outcome.trace
        kind, message, seconds = outcome.value
        assert kind in ("DistNetworkError", "DistBackendError")
        assert "rank 2" in message
        assert seconds < SOON_SECONDS


def test_monitored_barrier_names_the_ranks_that_do_not_come():
    def body(rank):
        other = dist.new_group(backend="gloo")
        one, two = dist.new_group(), dist.new_group()
        for _ in range(3):
            qccl.monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=True)
        with pytest.raises(RuntimeError, match=f"Rank {rank} timed out in monitoredBarrier"):
            qccl.monitored_barrier(timeout=timedelta(0))
        if rank == 0:
            with pytest.raises(dist.DistNetworkError, match="Rank 2 failed to pass monitoredBarrier in 2000 ms"):
                qccl.monitored_barrier(one, timedelta(seconds=2))
            with pytest.raises(dist.DistNetworkError, match="Ranks 2, 3 failed to pass monitoredBarrier in 2000 ms"):
                qccl.monitored_barrier(two, timedelta(seconds=2), wait_all_ranks=True)
        elif rank == 1:
            for group in (one, two):
                with pytest.raises(dist.DistNetworkError, match="Rank 1 successfully reached monitoredBarrier"):
                    qccl.monitored_barrier(group, timedelta(seconds=20))
        dist.barrier(other)
        dist.barrier()

    run_ranks(body, 4)


def test_late_rank_is_a_deadline_error_that_names_it():
    def body(rank):
        other = dist.new_group(backend="gloo")
        if rank == 0:
            with pytest.raises(dist.DistNetworkError, match="rank 1"):
                dist.all_reduce(torch.ones(10))
        dist.barrier(other)

    run_ranks(body, timeout=timedelta(seconds=4))


def test_set_timeout_holds_for_later_calls():
    def body(rank):
        other = dist.new_group(backend="gloo")
        dist.group.WORLD.set_timeout(timedelta(seconds=1))
        if rank == 0:
            started = time.monotonic()
            with pytest.raises(dist.DistNetworkError):
                dist.barrier()
            assert time.monotonic() - started < SOON_SECONDS
        dist.barrier(other)

    run_ranks(body)


def with_timeout(options, seconds):
    options.timeout = timedelta(seconds=seconds)
    options.asyncOp = True
    return options


def test_a_call_has_a_timeout_of_its_own():
    calls = [
        lambda group, seconds: group.allreduce([torch.ones(10)], with_timeout(dist.AllreduceOptions(), seconds)),
        lambda group, seconds: group.broadcast([torch.ones(10)], with_timeout(dist.BroadcastOptions(), seconds)),
        lambda group, seconds: group.barrier(with_timeout(dist.BarrierOptions(), seconds)),
    ]

    def body(rank):
        other = dist.new_group(backend="gloo")
        groups = [dist.new_group() for _ in calls]
        if rank == 1:
            for call, group in zip(calls, groups, strict=True):
                started = time.monotonic()
                with pytest.raises(dist.DistNetworkError, match="the deadline of 1 s passed while waiting for rank 0"):
                    call(group, 1).wait()
                assert time.monotonic() - started < SOON_SECONDS
        dist.barrier(other)

    run_ranks(body)


def test_a_call_may_take_longer_than_its_group_lets_others():
    def body(rank):
        other = dist.new_group(backend="gloo")
        slow, quick = (dist.new_group(timeout=timedelta(seconds=1)) for _ in range(2))
        tensor = torch.ones(10)
        options = with_timeout(dist.AllreduceOptions(), 25)
        if rank == 0:
            work = slow.allreduce([tensor], options)
            with pytest.raises(dist.DistNetworkError, match="the deadline of 1 s passed"):
                dist.barrier(quick)  # begun later, with the group's timeout
            dist.barrier(other)
        else:
            dist.barrier(other)
            work = slow.allreduce([tensor], options)
        work.wait()
        assert tensor[0].item() == 2
        if rank == 0:
            with pytest.raises(dist.DistNetworkError, match="the deadline of 1 s passed"):
                dist.all_reduce(tensor, group=slow)  # uses the group's timeout again
        dist.barrier(other)

    run_ranks(body)


def test_failed_work_raises_from_wait_and_from_its_future():
    def body(rank):
        work = dist.all_reduce(torch.ones(100 + rank), async_op=True)
        with pytest.raises(dist.DistBackendError) as from_wait:
            work.wait()
        with pytest.raises(dist.DistBackendError) as from_future:
            work.get_future().wait()
        assert str(from_wait.value) == str(from_future.value)
        assert work.is_completed() and not work.is_success()

    run_ranks(body)


@pytest.mark.skipif(
    "exception_ptr" in dist.Work.exception.__doc__, reason="this release's Work.exception() can't give it to Python"
)
def test_failed_work_has_the_exception():
    def body(rank):
        work = dist.all_reduce(torch.ones(100 + rank), async_op=True)
        with pytest.raises(dist.DistBackendError):
            work.wait()
        assert "100" in str(work.exception())

    run_ranks(body)


def test_abort_ends_operations_here_and_elsewhere():
    def body(rank):
        group = dist.new_group()
        dist.barrier()  # of the whole world: each rank has made the group before one of them aborts it
        if rank == 0:
            work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
            group.abort()
        with pytest.raises(dist.DistError):
            if rank == 1:
                work = dist.barrier(group, async_op=True)
            work.wait()

    run_ranks(body)


def test_bad_arguments_leave_the_group_usable():
    def body(rank):
        with pytest.raises(ValueError, match="must have 2 x 3 elements, it has 5"):
            dist.group.WORLD._allgather_base(torch.zeros(5), torch.zeros(3))
        with pytest.raises(ValueError, match="one type"):
            dist.group.WORLD._allgather_base(torch.zeros(6), torch.zeros(3, dtype=torch.int32))
        with pytest.raises(ValueError, match="the list must have one tensor for each of 2 ranks, it has 3"):
            dist.all_gather([torch.zeros(3)] * 3, torch.zeros(3))
        with pytest.raises(ValueError, match="avg"):
            dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2, 2, 2]

    run_ranks(body)


def test_missing_rank_at_start_is_named(tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 3)
        with pytest.raises(dist.DistNetworkError) as caught:
            dist.init_process_group("qccl", store=store, rank=rank, world_size=3, timeout=timedelta(seconds=4))
        return str(caught.value)

    outcomes = run_processes(body, 2)
    assert all(outcome.error is None for outcome in outcomes), outcomes
    assert "rank 2 did not appear" in outcomes[0].value


def test_an_interrupt_ends_the_start_at_once(tmp_path):
    """Rank 1 does not join: it interrupts rank 0 once that one has begun."""
    file, process = tmp_path / "store", tmp_path / "process"

    def body(rank):
        if rank == 1:
            while not file.exists() or b"qccl/" not in file.read_bytes():
                os.sched_yield()
            os.kill(int(process.read_text()), signal.SIGINT)
            return
        process.write_text(str(os.getpid()))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        store = dist.FileStore(str(file), 2)
        with pytest.raises(KeyboardInterrupt):
            dist.init_process_group("qccl", store=store, rank=0, world_size=2, timeout=timedelta(seconds=300))

    values_of(run_processes(body, 2))
