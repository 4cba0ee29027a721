"""Random programs over gloo and qccl side by side: works, futures, values, aliasing and errors' types are the same.

Each rank has both backends. A program is a list of calls from a seed that all ranks share; every call runs on both
backends with equal tensors, and all that a caller can observe of it is compared, except where qccl differs on purpose
(`allowed`, and docs/torch.md).
"""

import random
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from random_calls import (
    CALLS,
    SHAPES,
    TYPES,
    VIEWS,
    WORLD,
    Case,
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    reduce_scatter_tensor,
)
from ranks import run_ranks

PROGRAM_CALLS = 60


def description(value, tensors):
    """A value with its tensors as type, shape, elements, and the tensor of the call whose memory it is."""
    if isinstance(value, torch.Tensor):
        same = [i for i, tensor in enumerate(tensors) if tensor.numel() and tensor.data_ptr() == value.data_ptr()]
        if value.is_complex():  # averages differ by a rounding: gloo divides real numbers
            value = torch.view_as_real(value.resolve_conj()).round(decimals=4)
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


def has_raised(value):
    return isinstance(value, type)


def observe(call, tensors, waits=2):
    """All that a caller sees of an asynchronous call: of its Work before and after wait(), which is called `waits`
    times, of its future, and of callbacks that were added before and after."""
    work = kind(call)
    if has_raised(work):
        return {"raises": work}
    if work is None:
        return {"tensors": description(tensors, tensors)}
    future = kind(work.get_future)
    called_back = []
    early = None if has_raised(future) else future.then(lambda done: (done.value(), called_back.append(1))[0])
    seen = {"exception before": kind(work.exception)}  # TypeError with torch 2.11, which can't give it to Python
    for _ in range(waits):
        seen["wait"] = kind(work.wait)
        if has_raised(seen["wait"]):
            return {"raises": seen["wait"]}
    seen["called back"] = len(called_back)
    seen |= {"completed": work.is_completed(), "success": work.is_success(), "exception": kind(work.exception)}
    if early is not None:
        seen["future"] = (future.done(), description(future.wait(), tensors))
        seen["early"] = description(early.wait(), tensors)
        seen["then"] = description(future.then(lambda done: done.value()).wait(), tensors)
    seen["result"] = description(kind(work.result), tensors)
    seen["tensors"] = description(tensors, tensors)
    return seen


VALUES = ("future", "early", "called back", "then", "result")


def allowed(case, name, key):
    """Whether the backends may differ here."""
    if name in ("all_gather_into_tensor", "coalesced_all_gather"):
        return key in VALUES  # gloo's are the parts, NCCL's and qccl's the outputs
    if "reduce_scatter" in name:  # gloo's work says False after wait(), and has no future and no result
        return key in ("completed", *VALUES)
    if name == "reduce" and case.rank != case.root:
        return key in VALUES  # gloo leaves partial sums there, qccl the input
    return name == "ring" and key in VALUES  # gloo's messages have neither future nor result


def gloo_group(**arguments):
    group = dist.new_group(list(range(WORLD)), backend="gloo", **arguments)
    dist.barrier()  # a rank that ended while others still connect would be lost to them
    return group


def differences(rank, seed):
    gloo = gloo_group()
    found = []
    draw = random.Random(seed)
    for number in range(PROGRAM_CALLS):
        function, seen = draw.choice(CALLS), []
        drawn = {"dtype": draw.choice(TYPES), "shape": draw.choice(SHAPES), "view": draw.choice(VIEWS)}
        call_seed = draw.randrange(1 << 30)
        for group in (gloo, None):
            case = Case(call_seed, rank, group, **drawn)
            tensors, call = function(case)
            # A message of gloo's that is awaited again waits for another message.
            seen.append(observe(call, tensors, waits=1 if function.__name__ == "ring" and group else 2))
        if function is all_to_all and "raises" in seen[0]:
            continue  # gloo has it from torch 2.12 on
        name = function.__name__
        keys = [key for key in seen[0] | seen[1] if seen[0].get(key) != seen[1].get(key)]
        keys = [key for key in keys if not allowed(case, name, key)]
        if keys:
            shown = {key: (seen[0].get(key), seen[1].get(key)) for key in keys}
            found.append(f"call {number} {name} {drawn}, (gloo, qccl): {str(shown)[:400]}")
    return found


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_look_the_same(seed):
    for rank, found in enumerate(run_ranks(differences, WORLD, seed)):
        assert found == [], f"rank {rank}:\n" + "\n".join(found)


def states_of_calls_in_flight(rank):
    """Of both backends, for each call: what its Work says on the ranks that wait for a late one."""
    gate, gloo = gloo_group(), gloo_group()
    seen = {}
    for function in (all_reduce, all_gather, reduce_scatter_tensor, all_to_all_single, barrier):
        for group in (gloo, None):
            tensors, call = function(Case(1, rank, group, torch.float32, (7,), "whole"))
            if rank == WORLD - 1:
                dist.barrier(gate)
                call().wait()
                continue
            work = call()
            future = kind(work.get_future)
            state = {"completed": work.is_completed(), "exception": kind(work.exception)}
            state["done"] = future if has_raised(future) else future.done()
            seen.setdefault(function.__name__, []).append(state)
            dist.barrier(gate)
            work.wait()
    return seen


def test_calls_in_flight_look_the_same():
    for seen in run_ranks(states_of_calls_in_flight, WORLD)[:-1]:
        assert len(seen) == 5
        for name, (gloo, qccl) in seen.items():
            assert gloo["completed"] is qccl["completed"] is False, name
            assert gloo["exception"] == qccl["exception"], name
            assert qccl["done"] is False and gloo["done"] in (False, RuntimeError), name  # gloo: has no future


def test_a_missed_deadline_raises_a_kind_of_gloos_error():
    def body(rank):
        gate, limit = gloo_group(), timedelta(seconds=1)
        errors = []
        for group in (gloo_group(timeout=limit), dist.new_group(timeout=limit)):
            if rank == 0:
                work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
                errors.append([kind(work.wait), kind(work.wait), work.is_completed(), work.is_success()])
            dist.barrier(gate)
        return errors

    (gloo, qccl), *_ = run_ranks(body, WORLD)
    assert gloo == [RuntimeError, RuntimeError, True, False]
    assert qccl == [dist.DistNetworkError, dist.DistNetworkError, True, False]
    assert issubclass(dist.DistNetworkError, RuntimeError)


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
        "average of integers": lambda: dist.all_reduce(ones.int(), dist.ReduceOp.AVG, group=group),
        "average of flags": lambda: dist.all_reduce(ones.bool(), dist.ReduceOp.AVG, group=group),
        "product of complex numbers": lambda: dist.all_reduce(ones.cfloat(), dist.ReduceOp.PRODUCT, group=group),
    }


def refusals(_rank):
    gloo = gloo_group()
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


def test_what_only_gloo_refuses():
    def body(rank):
        outputs = [torch.zeros(2, dtype=torch.cfloat) for _ in range(WORLD)] if rank == 0 else None
        own = torch.full((2,), complex(rank, 1))
        with pytest.raises(RuntimeError, match="Invalid scalar type"):
            dist.gather(own, outputs, group=gloo_group())
        dist.gather(own, outputs)
        if rank == 0:
            assert [output[0].item() for output in outputs] == [complex(peer, 1) for peer in range(WORLD)]

        strided, received = torch.arange(10.0)[::2], torch.zeros(10)[::2]
        with pytest.raises(RuntimeError, match="contiguous"):
            dist.isend(strided, (rank + 1) % WORLD, group=gloo_group())
        sent = dist.isend(strided, (rank + 1) % WORLD)
        work = dist.irecv(received, (rank - 1) % WORLD)
        assert (sent.wait(), work.wait(), work.wait()) == (True, True, True)
        assert received.tolist() == [0, 2, 4, 6, 8]

    run_ranks(body, WORLD)
