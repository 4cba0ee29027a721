"""Tensors made under torch.inference_mode(), which other threads may write only in that mode."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks


def strided(value: float) -> torch.Tensor:
    return torch.full((3, 2), value).t()


def all_gather(rank):
    outputs = [torch.zeros(4), torch.zeros(4)]
    return dist.all_gather(outputs, torch.full((4,), float(rank)), async_op=True), outputs, [0.0, 1.0]


def all_gather_into_strided(rank):
    output = torch.zeros(3, 4).t()
    work = dist.all_gather_into_tensor(output, torch.full((2, 3), float(rank)), async_op=True)
    return work, [output[:2], output[2:]], [0.0, 1.0]


def all_gather_coalesced(rank):
    outputs = [[torch.zeros(4)], [torch.zeros(4)]]
    work = dist.group.WORLD.allgather_coalesced(outputs, [torch.full((4,), float(rank))])
    return work, [outputs[0][0], outputs[1][0]], [0.0, 1.0]


def gather(rank):
    outputs = [torch.zeros(4), torch.zeros(4)]
    work = dist.gather(torch.full((4,), float(rank)), outputs if rank == 0 else None, 0, async_op=True)
    return work, outputs, [0.0, 1.0 if rank == 0 else 0.0]


def scatter(rank):
    output = strided(-1.0)
    inputs = [strided(5.0), strided(6.0)] if rank == 0 else None
    return dist.scatter(output, inputs, 0, async_op=True), [output], [5.0 + rank]


def reduce_scatter(rank):
    output = strided(0.0)
    work = dist.reduce_scatter(output, [strided(1.0), strided(2.0)], async_op=True)
    return work, [output], [2.0 * (rank + 1)]


def reduce(rank):
    tensor = strided(1.0)
    return dist.reduce(tensor, 0, async_op=True), [tensor], [2.0 if rank == 0 else 1.0]


def all_reduce(rank):
    tensor = strided(1.0)
    return dist.all_reduce(tensor, async_op=True), [tensor], [2.0]


def all_reduce_coalesced(rank):
    tensors = [strided(1.0), torch.ones(5)]
    return dist.group.WORLD.allreduce_coalesced([*tensors, tensors[1]]), tensors, [2.0, 2.0]


def all_reduce_of_two(rank):
    tensors = [torch.ones(5), torch.ones(5)]
    return dist.group.WORLD.allreduce(tensors), tensors, [4.0, 4.0]


def broadcast(rank):
    tensor = strided(float(rank))
    return dist.broadcast(tensor, 1, async_op=True), [tensor], [1.0]


def all_to_all(rank):
    outputs = [torch.zeros(4), torch.zeros(4)]
    work = dist.all_to_all(outputs, [torch.full((4,), 10.0 * rank + peer) for peer in range(2)], async_op=True)
    return work, outputs, [0.0 + rank, 10.0 + rank]


def all_to_all_single(rank):
    tensor = strided(float(rank))
    return dist.all_to_all_single(tensor, tensor, async_op=True), [tensor[:1], tensor[1:]], [0.0, 1.0]


def recv(rank):
    tensor = strided(-1.0)
    dist.isend(strided(float(rank)), 1 - rank)
    return dist.irecv(tensor, 1 - rank), [tensor], [1.0 - rank]


def sparse(rank):
    tensor = torch.full((4,), 1.0).to_sparse()
    return dist.all_reduce(tensor, async_op=True), [tensor], [2.0]


CALLS = [
    all_gather,
    all_gather_into_strided,
    all_gather_coalesced,
    gather,
    scatter,
    reduce_scatter,
    reduce,
    all_reduce,
    all_reduce_coalesced,
    all_reduce_of_two,
    broadcast,
    all_to_all,
    all_to_all_single,
    recv,
    sparse,
]


@pytest.mark.parametrize("by_future", [True, False])
def test_every_call_writes_inference_tensors_from_any_thread(by_future):
    """If the program waits only for the future, the pool completes the call. Otherwise the waiting thread may, outside
    the mode."""

    def body(rank):
        for call in CALLS:
            with torch.inference_mode():
                work, tensors, expected = call(rank)
            if by_future:
                work.get_future().wait()
            else:
                work.wait()
            for tensor, value in zip(tensors, expected, strict=True):
                assert tensor.is_inference(), call.__name__
                assert (tensor.to_dense() == value).all(), (call.__name__, tensor, value)

    run_ranks(body)


def test_normal_tensors_stay_normal_when_a_thread_in_inference_mode_waits():
    def body(rank):
        for call in CALLS:
            work, tensors, expected = call(rank)
            with torch.inference_mode():
                work.wait()
            for tensor, value in zip(tensors, expected, strict=True):
                parts = [tensor.indices(), tensor.values()] if tensor.is_sparse else [tensor]
                assert not any(part.is_inference() for part in parts), call.__name__
                assert (tensor.to_dense() == value).all(), call.__name__
                tensor.mul_(2)

    run_ranks(body)


def test_what_autograd_has_saved_is_seen_to_change():
    def body(rank):
        weight = torch.ones(3, 2, requires_grad=True)
        saved = strided(1.0).t()[:, :1].expand(3, 2).clone().t()
        product = (weight.t() * saved).sum()
        dist.all_reduce(saved)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()

    run_ranks(body)
