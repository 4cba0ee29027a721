"""Random programs over gloo and qccl side by side: works, futures, values, aliasing and errors' types are the same.

Each rank has both backends. A program is a list of calls from a seed that all ranks share; every call runs on both
backends with equal tensors, and all that a caller can observe of it is compared, except where qccl differs on purpose
(`allowed`).
"""

import random

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

WORLD = 3
CALLS = 60
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.uint8]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (4099,)]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
VIEWS = ["whole", "whole", "offset", "reshaped"]


def make(draw, rank, shape, dtype, view="whole"):
    """A tensor that the seed and the rank decide; a view is contiguous memory inside a larger tensor."""
    count = torch.Size(shape).numel()
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30) + rank)
    values = torch.randint(0, 4, (count + 3,), generator=generator).to(dtype)
    if view == "offset":
        return values[3:].view(shape)
    return values[:count].view(shape) if view == "reshaped" else values[:count].clone().view(shape)


def description(value, tensors):
    """A value with its tensors as type, shape, elements, and the tensor of the call whose memory it is."""
    if isinstance(value, torch.Tensor):
        same = [i for i, tensor in enumerate(tensors) if tensor.numel() and tensor.data_ptr() == value.data_ptr()]
        return (str(value.dtype), tuple(value.shape), value.flatten().tolist(), same)
    if isinstance(value, list | tuple):
        return [description(one, tensors) for one in value]
    return value


def kind(call):
    """What the call returns, or its exception's type."""
    try:
        return call()
    except Exception as error:
        return type(error)


def observe(call, tensors):
    """All that a caller sees of an asynchronous call."""
    work = kind(call)
    if isinstance(work, type):
        return {"raises": work}
    future = kind(work.get_future)
    seen = {"wait": work.wait(), "completed": work.is_completed(), "success": work.is_success()}
    seen["exception"] = kind(work.exception)  # TypeError with torch 2.11, which can't give it to Python
    if not isinstance(future, type):
        seen["future"] = (future.done(), description(future.wait(), tensors))
        seen["then"] = description(future.then(lambda done: done.value()).wait(), tensors)
    seen["result"] = description(kind(work.result), tensors)
    seen["tensors"] = description(tensors, tensors)
    return seen


def all_reduce(draw, rank, group, dtype, shape, view):
    tensor, op = make(draw, rank, shape, dtype, view), draw.choice(OPS)
    return [tensor], lambda: dist.all_reduce(tensor, op, group=group, async_op=True)


def reduce(draw, rank, group, dtype, shape, view):
    root, tensor, op = draw.randrange(WORLD), make(draw, rank, shape, dtype, view), draw.choice(OPS)
    call = lambda: dist.reduce(tensor, root, op, group=group, async_op=True)  # noqa: E731
    return ([tensor] if rank == root else []), call


def broadcast(draw, rank, group, dtype, shape, view):
    tensor, root = make(draw, rank, shape, dtype, view), draw.randrange(WORLD)
    return [tensor], lambda: dist.broadcast(tensor, root, group=group, async_op=True)


def all_gather(draw, rank, group, dtype, shape, view):
    own, outputs = make(draw, rank, shape, dtype, view), [make(draw, rank, shape, dtype) for _ in range(WORLD)]
    if draw.random() < 0.3:
        own = outputs[rank]
    return [own, *outputs], lambda: dist.all_gather(outputs, own, group=group, async_op=True)


def stacked(shape):
    """The shape of WORLD such tensors in one."""
    return (WORLD * shape[0], *shape[1:]) if shape else (WORLD,)


def all_gather_into_tensor(draw, rank, group, dtype, shape, view):
    own = make(draw, rank, shape or (1,), dtype, view)
    output = make(draw, rank, stacked(own.shape), dtype)
    return [own, output], lambda: dist.all_gather_into_tensor(output, own, group=group, async_op=True)


def gather(draw, rank, group, dtype, shape, view):
    own, root = make(draw, rank, shape, dtype, view), draw.randrange(WORLD)
    outputs = [make(draw, rank, shape, dtype) for _ in range(WORLD)] if rank == root else None
    return [own, *(outputs or [])], lambda: dist.gather(own, outputs, root, group=group, async_op=True)


def scatter(draw, rank, group, dtype, shape, view):
    own, root = make(draw, rank, shape, dtype, view), draw.randrange(WORLD)
    parts = [make(draw, rank, shape, dtype) for _ in range(WORLD)]
    parts = parts if rank == root else None
    return [own, *(parts or [])], lambda: dist.scatter(own, parts, root, group=group, async_op=True)


def reduce_scatter_tensor(draw, rank, group, dtype, shape, view):
    own = make(draw, rank, shape or (1,), dtype, view)
    parts = make(draw, rank, stacked(own.shape), dtype)
    op = draw.choice(OPS)
    return [own, parts], lambda: dist.reduce_scatter_tensor(own, parts, op, group=group, async_op=True)


def all_to_all_single(draw, rank, group, dtype, shape, view):
    own, output = make(draw, rank, (WORLD * 4,), dtype, view), make(draw, rank, (WORLD * 4,), dtype)
    return [own, output], lambda: dist.all_to_all_single(output, own, group=group, async_op=True)


def barrier(draw, rank, group, dtype, shape, view):
    return [], lambda: dist.barrier(group=group, async_op=True)


def ring(draw, rank, group, dtype, shape, view):
    """A message to the next rank; what is observed is the receiver's work."""
    own, received = make(draw, rank, shape, dtype, view), make(draw, rank, shape, dtype)
    tag = draw.randrange(100)

    def call():
        sent = dist.isend(own, (rank + 1) % WORLD, group=group, tag=tag)
        work = dist.irecv(received, (rank - 1) % WORLD, group=group, tag=tag)
        sent.wait()
        return work

    return [own, received], call


CALLABLE = [all_reduce, reduce, broadcast, all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter_tensor,
            all_to_all_single, barrier, ring]  # fmt: skip


def allowed(name, key, gloo, qccl, is_root):
    """Whether the backends may differ here."""
    if name == "all_gather_into_tensor":
        return key in ("future", "then", "result")  # gloo's are the parts, NCCL's and qccl's the one output
    if name == "reduce_scatter_tensor":
        return key in ("completed", "result")  # gloo's work says False after wait(), and has no result
    if name == "reduce" and not is_root:
        return key in ("future", "then", "result")  # gloo leaves partial sums there, qccl the input
    return key == "result" and gloo is RuntimeError and qccl is not RuntimeError  # gloo's messages have none


def differences(rank, seed):
    gloo = dist.new_group(list(range(WORLD)), backend="gloo")
    found = []
    draw = random.Random(seed)
    for number in range(CALLS):
        function, dtype = draw.choice(CALLABLE), draw.choice(TYPES)
        shape, view, call_seed = draw.choice(SHAPES), draw.choice(VIEWS), draw.randrange(1 << 30)
        seen = []
        for group in (gloo, None):
            tensors, call = function(random.Random(call_seed), rank, group, dtype, shape, view)
            seen.append(observe(call, tensors))
        is_root = function is not reduce or rank == random.Random(call_seed).randrange(WORLD)
        keys = [key for key, value in seen[0].items() if seen[1].get(key) != value]
        keys = [key for key in keys if not allowed(function.__name__, key, seen[0][key], seen[1].get(key), is_root)]
        if keys:
            shown = {key: (seen[0].get(key), seen[1].get(key)) for key in keys}
            found.append(f"call {number} {function.__name__} {dtype} {shape} {view}, (gloo, qccl): {str(shown)[:400]}")
    return found


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_look_the_same(seed):
    for rank, found in enumerate(run_ranks(differences, WORLD, seed)):
        assert found == [], f"rank {rank}:\n" + "\n".join(found)


def wrong_calls(group):
    """Calls that every rank refuses before anything is sent."""
    ones, many = torch.ones(4), [torch.ones(4) for _ in range(WORLD)]
    other = [torch.ones(4), torch.ones(4), torch.ones(4, dtype=torch.float64)]
    return {
        "root outside": lambda: dist.broadcast(ones, WORLD, group=group),
        "too few outputs": lambda: dist.all_gather(many[:2], ones, group=group),
        "outputs of another type": lambda: dist.all_gather(other, ones, group=group),
        "output too small": lambda: dist.all_gather_into_tensor(torch.ones(5), ones, group=group),
        "input of another type": lambda: dist.all_gather_into_tensor(torch.ones(12), ones.double(), group=group),
        "splits that do not add up": lambda: dist.all_to_all_single(ones, ones, [1, 1, 1], [1, 1, 1], group=group),
        "no tensor": lambda: dist.all_reduce([1.0], group=group),
        "bits of floats": lambda: dist.all_reduce(ones, dist.ReduceOp.BAND, group=group),
    }


def refusals(_rank):
    gloo = dist.new_group(list(range(WORLD)), backend="gloo")
    of_gloo, of_qccl = wrong_calls(gloo), wrong_calls(None)
    return {name: [found if isinstance(found := kind(calls[name]), type) else None for calls in (of_gloo, of_qccl)]
            for name in of_qccl}  # fmt: skip


def test_what_gloo_refuses_is_refused_with_its_type_or_as_a_wrong_value():
    for refused in run_ranks(refusals, WORLD):
        wrong = {
            name: (gloo, qccl)
            for name, (gloo, qccl) in refused.items()
            if gloo is None or qccl is None or not issubclass(qccl, (gloo, ValueError))
        }
        assert wrong == {}
