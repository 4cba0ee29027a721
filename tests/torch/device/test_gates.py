"""QCCL_STREAM_ORDER=gate: streams wait for calls, and the host goes on."""

from collections.abc import Callable
from datetime import timedelta

import fakecuda
import pytest
import torch
import torch.distributed as dist
from device_ranks import DEVICE, late, needs_device, needs_fake, numbers, on_device
from ranks import TIMEOUT

import qccl

pytestmark = [needs_device, needs_fake]
OTHER = "fakecuda:1"


@pytest.fixture(autouse=True)
def _gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QCCL_STREAM_ORDER", "gate")
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # a stream that shares a queue with QCCL's does not wait


def total(count: int = 5000) -> torch.Tensor:
    return numbers(0, count) + numbers(1, count)


class Held:
    """While it lasts, stream 2 stands still, and so do all calls on it."""

    def __enter__(self) -> None:
        fakecuda.load().hold(0, 2)

    def __exit__(self, *_: object) -> None:
        fakecuda.load().release(0, 2)


CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor, int], dist.Work]] = {
    "reduction": lambda tensor, _out, _peer: dist.all_reduce(tensor, async_op=True),
    "gather": lambda tensor, out, _peer: dist.all_gather_into_tensor(out, tensor, async_op=True),
    "compressed": lambda tensor, _out, _peer: qccl.all_reduce(tensor, compression="minmax:bits=8", async_op=True),
    "messages": lambda tensor, out, peer: dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, out[:5000], peer)]
    )[0],
}


def test_wait_leaves_the_host_and_the_stream_sees_the_result() -> None:
    def body(rank: int) -> None:
        for name, make in CALLS.items():
            tensor, out = late(numbers(rank)), late(torch.zeros(10000))
            fakecuda.synchronize()
            with fakecuda.stream_of(2):
                with Held():
                    work = make(tensor, out, 1 - rank)
                    work.wait()  # would never end if the host waited
                    assert not work.is_completed(), name
                result = (out if name in ("gather", "messages") else tensor).cpu()
            expected = {
                "reduction": total(),
                "gather": torch.cat([numbers(0), numbers(1)]),
                "compressed": tensor.cpu(),
                "messages": torch.cat([numbers(1 - rank), torch.zeros(5000)]),
            }[name]
            assert torch.equal(result, expected), name
            assert (tensor.cpu() - total()).abs().max() < 2 or name != "compressed"

    on_device(body)


def test_a_call_that_is_not_asynchronous_leaves_the_host_as_well() -> None:
    def body(rank: int) -> None:
        tensor = late(numbers(rank))
        fakecuda.synchronize()
        with fakecuda.stream_of(2):
            with Held():
                for _ in range(3):
                    dist.all_reduce(tensor)
            assert torch.equal(tensor.cpu(), 4 * total())

    on_device(body)


def test_other_streams_go_on() -> None:
    def body(rank: int) -> None:
        tensor = late(numbers(rank))
        fakecuda.synchronize()
        with fakecuda.stream_of(2), Held():
            dist.all_reduce(tensor)
            with fakecuda.stream_of(3):
                assert torch.equal((late(numbers(7)) + 1).cpu(), numbers(8))

    on_device(body)


def test_futures_are_complete_at_once_and_callbacks_see_the_result() -> None:
    def body(rank: int) -> None:
        tensor = late(numbers(rank))
        fakecuda.synchronize()
        with fakecuda.stream_of(2):
            with Held():
                future = dist.all_reduce(tensor, async_op=True).get_future()
                assert future.done()
            then = future.then(lambda done: done.value()[0] * 2)
            with fakecuda.stream_of(4):
                assert torch.equal(future.wait()[0].cpu(), total())
                assert torch.equal(then.wait().cpu(), 2 * total())

    on_device(body)


def test_tensors_that_the_program_drops_live_until_their_call_has_ended() -> None:
    def body(rank: int) -> None:
        received = late(torch.zeros(5000))
        fakecuda.synchronize()
        with Held():
            with fakecuda.stream_of(2):
                if rank == 0:
                    dist.send(late(numbers(7)), 1)
                else:
                    dist.recv(received, 0)
            before = [late(torch.full((5000,), -1.0)) for _ in range(3)]  # where freed memory would be used again
            fakecuda.default_stream().synchronize()
        with fakecuda.stream_of(2):
            assert rank == 0 or torch.equal(received.cpu(), numbers(7))
        assert all(torch.equal(tensor.cpu(), torch.full((5000,), -1.0)) for tensor in before)

    on_device(body)


def test_what_needs_the_host_waits_on_the_host() -> None:
    def body(rank: int) -> None:
        tensor = late(numbers(rank, 6000).view(60, 100)).t()  # copied back by the host
        dist.all_reduce(tensor)
        assert torch.equal(tensor.cpu(), total(6000).view(60, 100).t())
        received = late(torch.zeros(5000))
        if rank == 0:
            dist.send(late(numbers(3)), 1)
        else:
            assert dist.recv(received) == 0  # from any rank: its number is known at the end
            assert torch.equal(received.cpu(), numbers(3))
        work = dist.all_reduce(tensor, async_op=True)
        work.wait(timedelta(seconds=60))
        assert work.is_completed()
        on_host = torch.ones(5)
        dist.all_reduce(on_host)
        assert torch.equal(on_host, torch.full((5,), 2.0))

    on_device(body)


def test_several_devices_in_one_batch() -> None:
    def body(rank: int) -> None:
        received = [late(torch.zeros(600), where) for where in (DEVICE, OTHER)]
        ops = [dist.P2POp(dist.irecv, tensor, 1 - rank) for tensor in received]
        ops += [dist.P2POp(dist.isend, late(numbers(rank + i, 600), where), 1 - rank)
                for i, where in enumerate((DEVICE, OTHER))]
        (work,) = dist.batch_isend_irecv(ops)
        work.wait()
        for i, tensor in enumerate(received):
            assert torch.equal(tensor.cpu(), numbers(1 - rank + i, 600)), tensor.device

    on_device(body)


def test_a_lost_rank_lets_the_stream_go_on_and_the_next_call_says_so() -> None:
    def body(rank: int) -> None:
        tensor = late(torch.full((5000,), float(rank)))
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            store.wait(["opened"])  # else the abort could end rank 0's init_process_group()
            dist.distributed_c10d._get_default_group()._get_backend(torch.device(DEVICE)).abort()
            return
        store.set("opened", "")
        try:
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            fakecuda.synchronize()
        except dist.DistError:
            return  # the loss was known before the stream waited
        with pytest.raises(dist.DistError, match="rank 1"):
            dist.all_reduce(tensor)
        assert work.is_completed() and not work.is_success()

    on_device(body)


def test_a_deadline_lets_the_stream_go_on() -> None:
    def body(rank: int) -> None:
        tensor = late(numbers(rank))
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            return store.wait(["tried"], TIMEOUT)
        dist.all_reduce(tensor)
        fakecuda.synchronize()
        with pytest.raises(dist.DistError, match="the deadline of 1 s passed"):
            dist.all_reduce(tensor)
        store.set("tried", "")

    on_device(body, timeout=timedelta(seconds=1))


def _train(rank: int) -> list[float]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).to(DEVICE)
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    losses = []
    for step in range(5):
        inputs = torch.randn(16, 64, generator=torch.Generator().manual_seed(10 * step + rank)).to(DEVICE)
        loss = ddp(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_ddp_has_the_losses_of_host_order(monkeypatch: pytest.MonkeyPatch) -> None:
    gated = on_device(_train)
    monkeypatch.setenv("QCCL_STREAM_ORDER", "host")
    assert gated == on_device(_train)


