"""Streams, lifetimes and devices: the order of calls with a program's own work, and which device a call is on."""

import gc
import time
from functools import partial

import fakecuda
import pytest
import torch
import torch.distributed as dist
from device_ranks import DEVICE, late, needs_device, needs_fake, numbers, on_device

import qccl
import qccl.pipeline

pytestmark = [needs_device, needs_fake]
OTHER = "fakecuda:1"


def ends_early(work: dist.Work) -> bool:
    """Whether it ends although its stream is held."""
    time.sleep(0.05)
    return work.is_completed()


def test_every_kind_of_call_takes_what_the_current_stream_has_when_it_is_made() -> None:
    def body(rank: int) -> None:
        device = fakecuda.load()
        peer = 1 - rank
        calls = {
            "reduction": lambda tensor, _: dist.all_reduce(tensor, async_op=True),
            "list": lambda tensor, out: dist.all_gather(list(out.chunk(2)), tensor, async_op=True),
            "compressed": partial(qccl.all_reduce, compression="minmax:bits=8", async_op=True),
            "message": lambda tensor, out: dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, out[:1000], peer)]
            )[0],
        }
        for name, make in calls.items():
            tensor, out = late(torch.zeros(1000)), late(torch.zeros(2000))
            fakecuda.synchronize()
            with fakecuda.stream_of(2):
                device.hold(0, 2)
                tensor.copy_(numbers(rank, 1000))
                work = make(tensor) if name == "compressed" else make(tensor, out)
            assert not ends_early(work), name
            device.release(0, 2)
            work.wait()
            result = out[:1000] if name in ("list", "message") else tensor
            expected = {
                "list": numbers(0, 1000),
                "message": numbers(peer, 1000),
                "compressed": result.cpu(),
            }.get(name, numbers(0, 1000) + numbers(1, 1000))
            assert torch.equal(result.cpu(), expected), name
            if name == "compressed":
                assert (result.cpu() - numbers(0, 1000) - numbers(1, 1000)).abs().max() < 2

    on_device(body)


def test_sparse_sums_take_what_the_current_stream_has_and_are_seen_by_every_stream() -> None:
    def body(rank: int) -> None:
        whole = torch.zeros(3000)
        for peer in range(2):
            whole[peer : peer + 2000] += numbers(peer, 2000) + 1
        for _ in range(3):
            with fakecuda.stream_of(2):
                places = late(torch.arange(2000)[None] + rank)
                tensor = torch.sparse_coo_tensor(places, late(numbers(rank, 2000)) + 1, (3000,))
                work = dist.all_reduce(tensor, async_op=True)
            with fakecuda.stream_of(4):
                work.wait()
            with fakecuda.stream_of(5):
                assert torch.equal(tensor.cpu().to_dense(), whole)

    on_device(body)


def test_after_wait_every_stream_sees_the_result() -> None:
    def body(rank: int) -> None:
        for with_gaps in (False, True):
            tensor = late(numbers(rank, 6000).view(60, 100))
            with fakecuda.stream_of(1):
                work = dist.all_reduce(tensor.t() if with_gaps else tensor, async_op=True)
            work.wait()
            doubled = []
            for number in (0, 3, 5):
                with fakecuda.stream_of(number):
                    doubled.append((tensor * 2).cpu())
            for result in doubled:
                assert torch.equal(result, 2 * (numbers(0, 6000) + numbers(1, 6000)).view(60, 100))

    on_device(body)


def test_tensors_that_the_program_drops_live_until_their_call_has_ended() -> None:
    def body(rank: int) -> None:
        device = fakecuda.load()
        received = late(torch.zeros(5000))
        fakecuda.synchronize()
        device.hold(0, 2)
        with fakecuda.stream_of(2):
            if rank == 0:
                dist.isend(late(numbers(7)), 1)
                dist.isend(late(numbers(8)), 1)
            else:
                dist.irecv(received, 0)
                dist.irecv(late(torch.zeros(5000)), 0)
        gc.collect()
        before = [late(torch.full((5000,), -1.0)) for _ in range(3)]  # where freed memory would be used again
        device.release(0, 2)
        dist.barrier()
        dist.all_reduce(late(torch.ones(1)))  # messages are in order, collectives do not overtake them here
        fakecuda.synchronize()
        if rank == 1:
            deadline = time.monotonic() + 30
            while not torch.equal(received.cpu(), numbers(7)) and time.monotonic() < deadline:
                time.sleep(0.001)
            assert torch.equal(received.cpu(), numbers(7))
        assert all(torch.equal(tensor.cpu(), torch.full((5000,), -1.0)) for tensor in before)

    on_device(body)


def test_callbacks_of_futures_may_use_the_result_and_make_calls() -> None:
    def body(rank: int) -> None:
        def again(done: torch.futures.Future) -> torch.Tensor:
            tensor = done.value()[0] + 1
            dist.all_reduce(tensor)
            return tensor

        with fakecuda.stream_of(4):
            tensor = late(numbers(rank))
            future = dist.all_reduce(tensor, async_op=True).get_future().then(again)
        with fakecuda.stream_of(5):
            result = (future.wait() * 2).cpu()
        total = numbers(0) + numbers(1)
        assert torch.equal(result, 4 * (total + 1))

    on_device(body)


# ---- several devices


def test_one_process_uses_several_devices() -> None:
    def body(rank: int) -> None:
        tensors = [late(numbers(rank + i), device) for i, device in enumerate((DEVICE, OTHER, "cpu", OTHER))]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        with fakecuda.device(1):
            here = torch.ones(100, device="fakecuda")
            dist.broadcast(here, 0)
            assert here.device == torch.device(OTHER)
        for i, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
            work.wait()
            assert torch.equal(tensor.cpu(), numbers(i) + numbers(i + 1))
        with pytest.raises(ValueError, match="needs tensors on one device, got some on fakecuda:0 and on fakecuda:1"):
            dist.all_gather([tensors[0], tensors[1]], tensors[0])

    on_device(body)


def test_ranks_use_a_device_each() -> None:
    def body(rank: int) -> None:
        fakecuda.set_device(rank)
        with fakecuda.stream_of(3):
            tensor = numbers(rank).to("fakecuda")
            dist.all_reduce(tensor)
            assert tensor.device.index == rank
            assert torch.equal(tensor.cpu(), numbers(0) + numbers(1))

    on_device(body)


def test_messages_on_several_devices_are_one_batch() -> None:
    def body(rank: int) -> None:
        places = (DEVICE, "cpu", OTHER)
        received = [late(torch.zeros(600).view(20, 30), where).t() for where in places]
        ops = [dist.P2POp(dist.irecv, tensor, 1 - rank) for tensor in received]
        ops += [
            dist.P2POp(dist.isend, late(numbers(rank + i, 600).view(30, 20), where), 1 - rank)
            for i, where in enumerate(places)
        ]
        (work,) = dist.batch_isend_irecv(ops)
        future = work.get_future()
        work.wait()
        assert len(future.value()) == len(ops)
        for i, tensor in enumerate(received):
            assert torch.equal(tensor.cpu(), numbers(1 - rank + i, 600).view(30, 20)), tensor.device

    on_device(body)


# ---- opening a device


def test_a_group_that_is_bound_to_a_device_opens_it_at_once() -> None:
    def body(_rank: int) -> None:
        device = fakecuda.load()
        opened = device.library_stream_count()
        assert opened > 0
        dist.all_reduce(late(torch.ones(1), OTHER))
        assert device.library_stream_count() == opened

    def unbound(_rank: int) -> None:
        assert fakecuda.load().library_stream_count() == 0

    on_device(body, device_id=torch.device("privateuseone:1"))
    on_device(unbound)


def test_opening_a_device_that_is_not_there_is_an_error() -> None:
    def body(_rank: int) -> None:
        backend = dist.group.WORLD._get_backend(torch.device(DEVICE))
        with pytest.raises(ValueError, match="there is no device 5: this process sees 2"):
            backend.eager_connect_single_device(torch.device("fakecuda:5"))
        backend.eager_connect_single_device(torch.device("cpu"))  # nothing to open
        dist.all_reduce(late(torch.ones(1)))

    on_device(body)


# ---- what is refused


def test_a_stream_that_is_being_captured_is_refused_with_what_to_do() -> None:
    def body(rank: int) -> None:
        device = fakecuda.load()
        tensor, worker, server = (late(numbers(rank, count)) for count in (5000, 5008, 2504))
        sparse = torch.sparse_coo_tensor(late(torch.tensor([[rank, 5]])), late(torch.ones(2)), (10,))
        pipeline = qccl.pipeline.Pipeline()
        words = "can't be part of a CUDA graph, because host threads move its data; make it outside of the capture"
        calls = [
            lambda: dist.all_reduce(tensor),
            lambda: dist.all_reduce(tensor, async_op=True),
            lambda: dist.all_gather([tensor.clone(), tensor.clone()], tensor),
            lambda: dist.isend(tensor, 1 - rank),
            lambda: qccl.all_reduce(tensor, compression="minmax:bits=4"),
            lambda: qccl.deepspeed.CompressedBackend().compressed_allreduce(tensor, worker, server),
            lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 1 - rank)]),
            lambda: dist.all_reduce(sparse),
            lambda: pipeline.send_forward(tensor) if rank == 0 else pipeline.send_backward(tensor),
        ]
        device.capture(0, 2, True)
        for call in calls:
            with fakecuda.stream_of(2), pytest.raises(NotImplementedError, match=words):
                call()
        dist.barrier()
        device.capture(0, 2, False)
        with fakecuda.stream_of(2):
            dist.all_reduce(tensor)
        assert torch.equal(tensor.cpu(), numbers(0) + numbers(1))

    on_device(body)
