"""Work and future objects of asynchronous calls."""

import gc
import threading
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
            with pytest.raises(dist.DistNetworkError, match="goes on"):
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
        wrong = []

        def use(group, place):
            for _ in range(50):
                tensor = torch.full((1000,), float(rank + place))
                dist.all_reduce(tensor, group=group, async_op=place % 2 == 0) and None
                dist.barrier(group)
                if tensor[0].item() != 1 + 2 * place:
                    wrong.append(place)

        threads = [threading.Thread(target=use, args=(group, place)) for place, group in enumerate(groups)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    run_ranks(body)


def test_unfinished_work_does_not_hold_up_destroying_its_group():
    def body(rank):
        group = dist.new_group()
        tensor = torch.ones(500_000)
        dist.all_reduce(tensor, group=group, async_op=True)
        dist.destroy_process_group(group)
        assert tensor[0].item() == 2, "destroying waits for this rank's operations"

    run_ranks(body)
