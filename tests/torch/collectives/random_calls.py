"""Calls of torch.distributed that a seed decides, for test_as_gloo.py. A call is made from a Case and gives the tensors
that it reads and writes, and a function that starts it and returns its Work, if it has one."""

import random
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

WORLD = 3
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.uint8,
         torch.bool, torch.complex64]  # fmt: skip
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (4099,)]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
VIEWS = ["whole", "whole", "offset", "reshaped", "transposed", "strided"]


@dataclass
class Case:
    """One call on one rank. Ranks that share the seed draw the same."""

    seed: int
    rank: int
    group: dist.ProcessGroup | None  # None: the default group, of qccl; else gloo's
    dtype: torch.dtype
    shape: tuple[int, ...]
    view: str
    draw: random.Random = field(init=False)
    root: int | None = field(default=None, init=False)  # of a call that has one

    def __post_init__(self):
        self.draw = random.Random(self.seed)

    def tensor(self, shape=None, view="whole"):
        """A tensor that the seed and the rank decide; a view is part of a larger tensor, or its elements in another
        order. gloo gets the elements of such views one after the other: it takes the memory that a view begins in for
        its elements."""
        values = self._drawn(shape, view)
        return values if self.group is None else values.contiguous()

    def _drawn(self, shape, view):
        shape = self.shape if shape is None else shape
        count = torch.Size(shape).numel()
        generator = torch.Generator().manual_seed(self.draw.randrange(1 << 30) + self.rank)
        values = torch.randint(0, 4, (2 * count + 3,), generator=generator).to(self.dtype)
        match view:
            case "offset":
                return values[3 : 3 + count].view(shape)
            case "reshaped":
                return values[:count].view(shape)
            case "transposed":
                return values[:count].view(shape[::-1]).permute(tuple(reversed(range(len(shape)))))
            case "strided":
                return values[: 2 * count].view(*shape, 2)[..., 0]
        return values[:count].clone().view(shape)

    def own(self, shape=None):
        return self.tensor(shape, self.view)

    def tensors(self, count, shape=None):
        return [self.tensor(shape) for _ in range(count)]

    def draw_root(self):
        self.root = self.draw.randrange(WORLD)
        return self.root

    def operation(self):
        """One that both backends have for the type. A call that gloo refuses can make its next one fail."""
        if self.dtype.is_complex:
            return self.draw.choice([dist.ReduceOp.SUM, dist.ReduceOp.AVG])
        return self.draw.choice([*OPS, dist.ReduceOp.AVG] if self.dtype.is_floating_point else OPS)


def stacked(shape):
    """The shape of WORLD such tensors in one."""
    return (WORLD * shape[0], *shape[1:]) if shape else (WORLD,)


def all_reduce(case):
    tensor, op = case.own(), case.operation()
    return [tensor], lambda: dist.all_reduce(tensor, op, group=case.group, async_op=True)


def reduce(case):
    root, tensor, op = case.draw_root(), case.own(), case.operation()
    call = lambda: dist.reduce(tensor, root, op, group=case.group, async_op=True)  # noqa: E731
    return ([tensor] if case.rank == root else []), call


def broadcast(case):
    tensor, root = case.own(), case.draw_root()
    return [tensor], lambda: dist.broadcast(tensor, root, group=case.group, async_op=True)


def all_gather(case):
    own, outputs = case.own(), case.tensors(WORLD)
    if case.draw.random() < 0.3:
        own = outputs[case.rank]
    return [own, *outputs], lambda: dist.all_gather(outputs, own, group=case.group, async_op=True)


def all_gather_into_tensor(case):
    own = case.own(case.shape or (1,))
    output = case.tensor(stacked(own.shape))
    return [own, output], lambda: dist.all_gather_into_tensor(output, own, group=case.group, async_op=True)


def gather(case):
    if case.dtype.is_complex:
        case.dtype = torch.float32  # gloo's gather has no complex numbers
    own, root = case.own(), case.draw_root()
    outputs = case.tensors(WORLD) if case.rank == root else None
    return [own, *(outputs or [])], lambda: dist.gather(own, outputs, root, group=case.group, async_op=True)


def scatter(case):
    own, root, parts = case.own(), case.draw_root(), case.tensors(WORLD)
    parts = parts if case.rank == root else None
    return [own, *(parts or [])], lambda: dist.scatter(own, parts, root, group=case.group, async_op=True)


def reduce_scatter(case):
    own, parts, op = case.own(), case.tensors(WORLD), case.operation()
    return [own, *parts], lambda: dist.reduce_scatter(own, parts, op, group=case.group, async_op=True)


def reduce_scatter_tensor(case):
    own = case.own(case.shape or (1,))
    parts, op = case.tensor(stacked(own.shape)), case.operation()
    return [own, parts], lambda: dist.reduce_scatter_tensor(own, parts, op, group=case.group, async_op=True)


def all_to_all_single(case):
    own, output = case.own((WORLD * 4,)), case.tensor((WORLD * 4,))
    return [own, output], lambda: dist.all_to_all_single(output, own, group=case.group, async_op=True)


def drawn_splits(case):
    """How many elements this rank sends to each rank, and gets from each."""
    sent = [[case.draw.randrange(4) for _ in range(WORLD)] for _ in range(WORLD)]
    return sent[case.rank], [row[case.rank] for row in sent]


def all_to_all_single_uneven(case):
    sends, receives = drawn_splits(case)
    own, output = case.own((sum(sends),)), case.tensor((sum(receives),))
    arguments = (output, own, receives, sends)
    return [own, output], lambda: dist.all_to_all_single(*arguments, group=case.group, async_op=True)


def all_to_all(case):
    inputs, outputs = [case.own(), *case.tensors(WORLD - 1)], case.tensors(WORLD)
    return [*inputs, *outputs], lambda: dist.all_to_all(outputs, inputs, group=case.group, async_op=True)


def barrier(case):
    return [], lambda: dist.barrier(group=case.group, async_op=True)


def ring(case):
    """Sends a message to the next rank and observes the receiver's Work."""
    own, received, tag = case.own(), case.own(), case.draw.randrange(100)

    def call():
        sent = dist.isend(own, (case.rank + 1) % WORLD, group=case.group, tag=tag)
        work = dist.irecv(received, (case.rank - 1) % WORLD, group=case.group, tag=tag)
        sent.wait()
        return work

    return [own, received], call


def batched_ring(case):
    """A message to each neighbour in one batch, which gives a Work or several: what is observed are the tensors."""
    sent, received = case.tensors(2), case.tensors(2)
    neighbours = [(case.rank + 1) % WORLD, (case.rank - 1) % WORLD]

    def call():
        messages = [dist.P2POp(dist.isend, *pair, group=case.group) for pair in zip(sent, neighbours, strict=True)]
        messages += [dist.P2POp(dist.irecv, *pair, group=case.group) for pair in zip(received, neighbours, strict=True)]
        for work in dist.batch_isend_irecv(messages):
            work.wait()

    return [*sent, *received], call


def coalesced(case, calls):
    """Starts the calls as one."""

    def call():
        with dist._coalescing_manager(group=case.group, async_ops=True) as manager:
            for one in calls:
                one()
        (work,) = manager.works
        return work

    return call


def coalesced_all_reduce(case):
    tensors, op = [case.own(), case.tensor((5,)), case.tensor()], case.operation()
    calls = [lambda tensor=tensor: dist.all_reduce(tensor, op, group=case.group) for tensor in tensors]
    return tensors, coalesced(case, calls)


def coalesced_all_gather(case):
    pairs = [(case.tensor(stacked(shape)), case.own(shape)) for shape in (case.shape or (1,), (5,))]
    calls = [lambda pair=pair: dist.all_gather_into_tensor(*pair, group=case.group) for pair in pairs]
    return [tensor for pair in pairs for tensor in pair], coalesced(case, calls)


def coalesced_reduce_scatter(case):
    pairs = [(case.own(shape), case.tensor(stacked(shape))) for shape in (case.shape or (1,), (5,))]
    op = case.operation()
    calls = [lambda pair=pair: dist.reduce_scatter_tensor(*pair, op, group=case.group) for pair in pairs]
    return [tensor for pair in pairs for tensor in pair], coalesced(case, calls)


CALLS = [all_reduce, reduce, broadcast, all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter,
         reduce_scatter_tensor, all_to_all_single, all_to_all_single_uneven, all_to_all, barrier, ring,
         batched_ring, coalesced_all_reduce, coalesced_all_gather, coalesced_reduce_scatter]  # fmt: skip
