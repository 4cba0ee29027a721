"""Tensors of a device, through torch.

"privateuseone", named "fakecuda", is a device over the fake CUDA driver (fake_device.cc), which stands for CUDA: its
memory crashes the host that touches it, and its streams run late.
"""

import time

import fakecuda
import pytest
import torch
import torch.distributed as dist
from device_ranks import DEVICE, KIND, late, needs_device, needs_fake, numbers, on_device

import qccl

pytestmark = needs_device


def test_all_reduce_adds_tensors_of_a_device():
    def body(rank: int) -> None:
        for count in (1, 1000, 300_007):
            tensor = late(numbers(rank, count))
            dist.all_reduce(tensor)
            assert tensor.device.type == KIND
            assert torch.equal(tensor.cpu(), numbers(0, count) + numbers(1, count))

    on_device(body)


def test_every_collective_moves_tensors_of_a_device():
    def body(rank: int) -> None:
        both = [numbers(0), numbers(1)]
        own = late(numbers(rank))
        gathered = [late(torch.zeros(5000)) for _ in range(2)]
        dist.all_gather(gathered, own)
        assert [torch.equal(part.cpu(), expected) for part, expected in zip(gathered, both, strict=True)] == [True] * 2
        whole = late(torch.zeros(10_000))
        dist.all_gather_into_tensor(whole, own)
        assert torch.equal(whole.cpu(), torch.cat(both))
        part = late(torch.zeros(5000))
        dist.reduce_scatter_tensor(part, whole)
        assert torch.equal(part.cpu(), 2 * both[rank])
        dist.broadcast(part, 1)
        assert torch.equal(part.cpu(), 2 * both[1])
        dist.reduce(part, 0)
        if rank == 0:
            assert torch.equal(part.cpu(), 4 * both[1])
        dist.all_to_all_single(whole, late(torch.cat([numbers(rank), numbers(rank + 10)])))
        assert torch.equal(whole.cpu(), torch.cat([numbers(10 * rank), numbers(10 * rank + 1)]))
        dist.gather(own, gathered if rank == 1 else None, 1)
        if rank == 1:
            assert torch.equal(gathered[0].cpu(), both[0])
        dist.scatter(part, gathered if rank == 1 else None, 1)
        assert torch.equal(part.cpu(), both[rank])
        dist.barrier()

    on_device(body)


def test_messages_go_from_device_to_device():
    def body(rank: int) -> None:
        if rank == 0:
            dist.send(late(numbers(7)), 1)
            return
        received = late(torch.zeros(5000))
        dist.recv(received, 0)
        assert torch.equal(received.cpu(), numbers(7))

    on_device(body)


@needs_fake
def test_a_call_takes_what_the_current_stream_has_when_it_is_made():
    def body(rank: int) -> None:
        device = fakecuda.load()
        tensor = late(torch.zeros(1000))
        tensor.cpu()  # waits for the zeros, which another stream writes
        with fakecuda.stream_of(2):
            device.hold(0, 2)
            tensor.copy_(numbers(rank, 1000))
            work = dist.all_reduce(tensor, async_op=True)
        time.sleep(0.05)  # a call that does not wait for its stream would end by then
        assert not work.is_completed()
        device.release(0, 2)
        work.wait()
        assert torch.equal(tensor.cpu(), numbers(0, 1000) + numbers(1, 1000))

    on_device(body)


def test_tensors_that_are_not_contiguous_are_copied_there_and_back():
    def body(rank: int) -> None:
        for asynchronous in (False, True):
            matrix = late(numbers(rank, 6000).view(60, 100))
            work = dist.all_reduce(matrix.t(), async_op=asynchronous)
            columns = late(torch.zeros(60, 50))
            gathered = late(torch.zeros(2, 60, 50))
            dist.all_gather([gathered[0].t(), gathered[1].t()], columns.t())
            if work is not None:
                work.wait()
            assert torch.equal(matrix.cpu(), (numbers(0, 6000) + numbers(1, 6000)).view(60, 100))

    on_device(body)


def test_futures_have_the_devices_tensors():
    def body(rank: int) -> None:
        tensor = late(numbers(rank))
        future = dist.all_reduce(tensor, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2).wait()
        assert torch.equal(doubled.cpu(), 2 * (numbers(0) + numbers(1)))

    on_device(body)


def test_compression_and_error_feedback_take_tensors_of_a_device():
    def body(rank: int) -> None:
        for bits in (2, 8):
            on_cpu = numbers(rank, 100_000).sin()
            tensor = late(on_cpu)
            feedback = [qccl.ErrorFeedback(100_000) for _ in range(2)]
            for which, values in enumerate((on_cpu, tensor)):
                qccl.all_reduce(values, compression=f"minmax:bits={bits}", error_feedback=feedback[which])
            assert torch.equal(tensor.cpu(), on_cpu)

    on_device(body)


def test_tensors_of_two_devices_are_refused_in_one_call():
    def body(rank: int) -> None:
        with pytest.raises(ValueError, match="on one device"):
            dist.all_gather_into_tensor(late(torch.zeros(20)), torch.zeros(10))
        dist.barrier()

    on_device(body)


def test_ranks_with_tensors_of_different_devices_are_told_both_calls():
    def body(rank: int) -> None:
        tensor = late(torch.zeros(10)) if rank == 0 else torch.zeros(10)
        with pytest.raises(dist.DistBackendError, match="device memory"):
            dist.all_reduce(tensor)

    on_device(body)


def test_ddp_trains_a_model_on_a_device_as_on_the_cpu():
    def body(rank: int) -> None:
        weights = []
        for device in ("cpu", DEVICE):
            torch.manual_seed(1)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(50, 20).to(device))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
            for step in range(3):
                inputs = numbers(10 * step + rank, 200).view(4, 50) / 100
                model(inputs.to(device)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            weights.append(model.module.weight.detach().cpu())
        assert torch.equal(*weights)

    on_device(body)
