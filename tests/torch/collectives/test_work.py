"""Work and future objects of asynchronous calls."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks


def test_future_holds_the_outputs():
    def body(rank):
        tensor = torch.full((3,), rank + 1.0)
        work = dist.all_reduce(tensor, async_op=True)
        value = work.get_future().wait()
        assert isinstance(value, list) and len(value) == 1 and value[0].data_ptr() == tensor.data_ptr()
        assert value[0].tolist() == [3, 3, 3]
        assert work.is_completed() and work.is_success() and work.result()[0].tolist() == [3, 3, 3]
        assert work.wait() is True

        outputs = [torch.zeros(1), torch.zeros(1)]
        value = dist.all_gather(outputs, torch.tensor([float(rank)]), async_op=True).get_future().wait()
        assert [output.item() for output in value] == [0, 1]
        assert dist.barrier(async_op=True).get_future().wait() == []

    run_ranks(body)


def test_value_is_there_when_wait_returns():
    def body(rank):
        for _ in range(300):
            work = dist.all_reduce(torch.ones(10), async_op=True)
            work.wait()
            assert work.get_future().done() and work.is_completed()
            assert work.get_future().value()[0][0].item() == 2

    run_ranks(body)


def test_callbacks_run_once_and_may_use_further_collectives():
    def body(rank):
        calls = []

        def second(future):
            calls.append(threading.get_ident())
            tensor = future.value()[0]
            dist.all_reduce(tensor)
            return tensor

        tensors = [torch.full((10_000,), rank + 1.0) for _ in range(8)]
        futures = [dist.all_reduce(tensor, async_op=True).get_future().then(second) for tensor in tensors]
        for future in futures:
            assert future.wait()[0].item() == 6
        assert len(calls) == 8

    run_ranks(body)


def test_callback_may_wait_for_its_own_work():
    def body(rank):
        work = dist.all_reduce(torch.ones(10), async_op=True)
        done = work.get_future().then(lambda _: work.wait())
        work.wait()
        assert done.wait() is True

    run_ranks(body)


def test_callback_on_a_complete_future_runs_at_once_in_the_calling_thread():
    def body(rank):
        here, ran = threading.get_ident(), []

        def note(future):
            ran.append(threading.get_ident())
            return future.value()

        for n in range(200):
            work = dist.all_reduce(torch.full((5000,), rank + 1.0), async_op=True)
            if n % 2:  # a callback on the pool; it has ended when its future is done
                work.get_future().then(lambda future: future.value()).wait()
            work.wait()
            ran.clear()
            chained = work.get_future().then(note).then(note)
            assert ran == [here, here] and chained.done() and chained.value()[0][0].item() == 3
            work.get_future().add_done_callback(note)
            assert ran == [here] * 3
            nested = []
            work.get_future().then(lambda _: nested.append(work.get_future().then(note).done()))  # noqa: B023
            assert nested == [True] and ran == [here] * 4

    run_ranks(body)


def test_callback_that_runs_at_once_uses_collectives_beside_those_on_the_pool():
    def body(rank):
        def add(future):
            tensor = torch.full((10_000,), future.value()[0][0].item())
            dist.all_reduce(tensor)
            return tensor[0].item()

        futures = []
        for n in range(40):
            work = dist.all_reduce(torch.full((10_000,), float(n)), async_op=True)
            if (n + rank) % 3 == 0:
                work.wait()  # on one rank only: there the callback may run at once
            futures.append(work.get_future().then(add))
        assert [future.wait() for future in futures] == [4.0 * n for n in range(40)]

    run_ranks(body)


def test_failing_callback_fails_its_own_future_only():
    def body(rank):
        def fail(_):
            raise KeyError("the user's mistake")

        work = dist.all_reduce(torch.ones(10), async_op=True)
        future = work.get_future().then(fail)
        with pytest.raises(RuntimeError, match="the user's mistake"):
            future.wait()
        assert work.wait() is True
        dist.all_reduce(torch.ones(10))

    run_ranks(body)


def test_dropped_work_completes_and_keeps_its_tensor():
    def body(rank):
        kept = torch.full((300_000,), rank + 1.0)
        dist.all_reduce(kept, async_op=True)
        for _ in range(20):
            dist.all_reduce(torch.rand(100_000), async_op=True)
            gc.collect()
        dist.barrier()
        assert bool((kept == 3).all())

    run_ranks(body)


def test_wait_with_a_timeout_leaves_the_operation_going():
    def body(rank):
        other = dist.new_group(backend="gloo")
        if rank == 0:
            tensor = torch.ones(10)
            work = dist.all_reduce(tensor, async_op=True)
            late = (
                r"rank 0, group 'world': all_reduce\(count=10, float32, sum\) #\d+: did not end within the 50 ms that "
                r"wait\(\) was given, waiting for rank 1 \(got \d+ of \d+ bytes\); it goes on"
            )
            with pytest.raises(dist.DistNetworkError, match=late):
                work.wait(timedelta(milliseconds=50))
            assert not work.is_completed()
            dist.barrier(other)
            assert work.wait() is True and tensor[0].item() == 2
        else:
            dist.barrier(other)
            dist.all_reduce(torch.ones(10))

    run_ranks(body)


def test_calls_from_several_threads_on_their_own_groups():
    def body(rank):
        groups = [dist.new_group() for _ in range(4)]

        def use(number):
            for _ in range(50):
                tensor = torch.full((1000,), float(rank + number))
                dist.all_reduce(tensor, group=groups[number], async_op=number % 2 == 0)
                dist.barrier(groups[number])
                assert tensor[0].item() == 1 + 2 * number

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(use, range(4)))

    run_ranks(body)


def test_unfinished_work_does_not_hold_up_destroying_its_group():
    def body(rank):
        group = dist.new_group()
        tensor = torch.ones(500_000)
        dist.all_reduce(tensor, group=group, async_op=True)
        dist.destroy_process_group(group)
        assert tensor[0].item() == 2, "destroying waits for this rank's operations"

    run_ranks(body)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_hundred_operations_at_once_from_four_threads(transport):
    def body(rank):
        groups = [dist.new_group() for _ in range(4)]
        failures = []

        def use(place):
            try:
                group, size = groups[place], (10, 3000, 200_000)
                tensors = [torch.full((size[n % 3],), float(rank + n)) for n in range(25)]
                works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
                received = [torch.zeros(size[n % 3]) for n in range(25)]
                for n in range(25):
                    # All threads send messages in one group: each thread has its own tag.
                    works.append(dist.isend(torch.full((size[n % 3],), float(n)), 1 - rank, tag=place))
                    works.append(dist.irecv(received[n], 1 - rank, tag=place))
                for work in reversed(works):
                    work.wait()
                for n in range(25):
                    assert tensors[n][-1].item() == 2 * n + 1 and received[n][-1].item() == n
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=use, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures

    run_ranks(body, environment={"QCCL_TRANSPORT": transport})


def test_destroying_a_group_ends_what_its_peers_never_do():
    def body(rank):
        other = dist.new_group(backend="gloo")
        group = dist.new_group()
        if rank == 0:
            works = [dist.irecv(torch.zeros(1), 1, group=group)]
            works.append(dist.all_reduce(torch.ones(9), group=group, async_op=True))
            started = time.monotonic()
            dist.destroy_process_group(group)
            assert time.monotonic() - started < 25
            for work in works:
                with pytest.raises(dist.DistError, match="destroyed the process group while operations were in flight"):
                    work.wait()
        dist.barrier(other)
        dist.barrier()

    run_ranks(body)


def test_work_knows_its_result_duration_and_may_be_aborted():
    def body(rank):
        other = dist.new_group(backend="gloo")
        group = dist.new_group()
        done = dist.all_reduce(torch.ones(10), async_op=True)
        done.wait()
        assert done._get_duration() > 0 and done.get_future_result().wait() == 0
        if rank == 0:
            work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
            work.abort()
            with pytest.raises(dist.DistError, match="aborted one of its operations"):
                work.wait()
            assert work.get_future_result().wait() == 2
        dist.barrier(other)

    run_ranks(body)
