"""Every call of torch.distributed that takes CPU tensors takes a device's, and gives the CPU's results."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from device_ranks import DEVICE, KIND, needs_device, numbers, on_device
from torch.distributed.distributed_c10d import _coalescing_manager

import qccl

pytestmark = needs_device

WORLD = 3
Place = Callable[[torch.Tensor], torch.Tensor]  # puts a tensor on the device, or leaves it on the CPU
Call = Callable[[int, Place], Any]
CALLS: dict[str, Call] = {}
HAS_NO_TENSORS = {
    *("AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend BackendConfig BarrierOptions".split()),
    *("BroadcastOptions DebugLevel GatherOptions GroupMember GroupName P2POp PrefixStore ProcessGroup".split()),
    *("ReduceOp ReduceOptions ReduceScatterOptions ScatterOptions Store Work default_pg_timeout".split()),
    *("destroy_process_group get_backend get_backend_config get_backend_impl get_debug_level".split()),
    *("get_default_backend_for_device get_global_rank get_group_rank get_node_local_rank get_pg_count".split()),
    *("get_process_group_ranks get_rank get_world_size group init_process_group is_backend_available".split()),
    *("is_gloo_available is_initialized is_mpi_available is_nccl_available is_torchelastic_launched".split()),
    *("is_ucc_available is_xccl_available monitored_barrier new_group new_subgroups".split()),
    *("new_subgroups_by_enumeration record_comm reduce_op set_timeout shrink_group split_group".split()),
    "supports_complex",
}
# Not in every release of torch.
LATER_CALLS = {"all_gather_single", "reduce_scatter_single", "gather_single", "gather_into_tensor"}
# torch or DeepSpeed's interface refuses others.
NEED_CONTIGUOUS: set[str] = {"onebit"}
if torch.__version__ < (2, 13):
    NEED_CONTIGUOUS.add("of_functional_collectives")


def call(body: Call) -> Call:
    CALLS[body.__name__] = body
    return body


def lists(place: Place, count: int = 500) -> list[torch.Tensor]:
    return [place(torch.zeros(count)) for _ in range(WORLD)]


# ---- reductions


@call
def all_reduce(rank: int, place: Place) -> Any:
    ops = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    bits = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
    cases = [(dtype, op) for dtype in (torch.float32, torch.bfloat16, torch.float64) for op in ops]
    cases += [(dtype, op) for dtype in (torch.int32, torch.int64) for op in bits]
    cases += [(torch.complex64, dist.ReduceOp.SUM), (torch.bool, dist.ReduceOp.MAX)]
    results = []
    for dtype, op in cases:
        tensor = place(numbers(rank, 300).to(dtype))
        dist.all_reduce(tensor, op)
        results.append(tensor)
    return results


@call
def all_reduce_coalesced(rank: int, place: Place) -> Any:
    tensors = [place(numbers(rank, count)) for count in (3, 700, 70_000)]
    dist.all_reduce_coalesced(tensors)
    return tensors


@call
def all_reduce_of_sparse_tensors(rank: int, place: Place) -> Any:
    """Sums of rows, and of elements that occur several times."""
    results = []
    for dtype, op in [
        (torch.float32, dist.ReduceOp.SUM),
        (torch.complex64, dist.ReduceOp.SUM),
        (torch.bfloat16, dist.ReduceOp.AVG),
        (torch.int64, dist.ReduceOp.SUM),
    ]:
        rows = torch.sparse_coo_tensor(
            place(torch.tensor([[rank, 5, 5]])), place(numbers(rank, 12).view(3, 4).to(dtype)), (9, 4)
        )
        elements = torch.sparse_coo_tensor(
            place(torch.tensor([[3, rank], [rank, 2]])), place(numbers(rank, 2).to(dtype)), (9, 4)
        )
        # torch's own gives a backend complex ones as real ones, whose sums it drops
        (qccl if dtype.is_complex else dist).all_reduce(rows, op)
        qccl.all_reduce(elements, op)
        for tensor in (rows, elements):
            assert tensor.is_coalesced()
            results += [tensor._indices(), tensor._values()]
    return results


@call
def reduce(rank: int, place: Place) -> Any:
    tensor = place(numbers(rank))
    dist.reduce(tensor, 1)
    return tensor if rank == 1 else []


@call
def reduce_scatter(rank: int, place: Place) -> Any:
    part, uneven = place(torch.zeros(500)), place(torch.zeros(rank + 5))
    dist.reduce_scatter(part, [place(numbers(rank + peer, 500)) for peer in range(WORLD)])
    dist.reduce_scatter(uneven, [place(numbers(rank + peer, peer + 5)) for peer in range(WORLD)])
    return [part, uneven]


@call
def reduce_scatter_tensor(rank: int, place: Place) -> Any:
    part = place(torch.zeros(500))
    dist.reduce_scatter_tensor(part, place(numbers(rank, 1500)))
    return part


@call
def reduce_scatter_single(rank: int, place: Place) -> Any:
    part = place(torch.zeros(500))
    dist.reduce_scatter_single(part, place(numbers(rank, 1500)))
    return part


# ---- movement


@call
def broadcast(rank: int, place: Place) -> Any:
    tensor = place(numbers(rank))
    dist.broadcast(tensor, 2)
    return tensor


@call
def all_gather(rank: int, place: Place) -> Any:
    gathered, uneven = lists(place), [place(torch.zeros(peer + 1)) for peer in range(WORLD)]
    dist.all_gather(gathered, place(numbers(rank, 500)))
    dist.all_gather(uneven, place(numbers(rank, rank + 1)))
    return gathered + uneven


@call
def all_gather_coalesced(rank: int, place: Place) -> Any:
    gathered = [[place(torch.zeros(count)) for count in (10, 20)] for _ in range(WORLD)]
    dist.all_gather_coalesced(gathered, [place(numbers(rank, count)) for count in (10, 20)])
    return sum(gathered, [])


@call
def all_gather_into_tensor(rank: int, place: Place) -> Any:
    whole = place(torch.zeros(1500))
    dist.all_gather_into_tensor(whole, place(numbers(rank, 500)))
    return whole


@call
def all_gather_single(rank: int, place: Place) -> Any:
    whole = place(torch.zeros(WORLD, 500))
    dist.all_gather_single(whole, place(numbers(rank, 500)))
    return whole


@call
def gather(rank: int, place: Place) -> Any:
    gathered = lists(place) if rank == 1 else None
    dist.gather(place(numbers(rank, 500)), gathered, 1)
    return gathered or []


@call
def gather_single(rank: int, place: Place) -> Any:
    whole = place(torch.zeros(WORLD, 500)) if rank == 1 else None
    dist.gather_single(place(numbers(rank, 500)), whole, dst=1)
    return [] if whole is None else whole


@call
def gather_into_tensor(rank: int, place: Place) -> Any:
    whole = place(torch.zeros(WORLD, 500)) if rank == 1 else None
    dist.gather_into_tensor(place(numbers(rank, 500)), whole, dst=1)
    return [] if whole is None else whole


@call
def scatter(rank: int, place: Place) -> Any:
    part = place(torch.zeros(500))
    parts = [place(numbers(peer, 500)) for peer in range(WORLD)] if rank == 2 else None
    dist.scatter(part, parts, 2)
    return part


@call
def all_to_all(rank: int, place: Place) -> Any:
    received = [place(torch.zeros(10 * rank + peer)) for peer in range(WORLD)]
    dist.all_to_all(received, [place(numbers(rank, 10 * peer + rank)) for peer in range(WORLD)])
    return received


@call
def all_to_all_single(rank: int, place: Place) -> Any:
    even, uneven = place(torch.zeros(600)), place(torch.zeros(3 * rank + 3))
    dist.all_to_all_single(even, place(numbers(rank, 600)))
    dist.all_to_all_single(uneven, place(numbers(rank, 6)), [rank + 1] * WORLD, [1, 2, 3])
    return [even, uneven]


@call
def barrier(_rank: int, _place: Place) -> Any:
    dist.barrier()
    return []


# ---- messages: around a ring


def neighbours(rank: int) -> tuple[int, int]:
    return (rank + 1) % WORLD, (rank - 1) % WORLD


@call
def send(rank: int, place: Place) -> Any:
    received = place(torch.zeros(5000))
    after, before = neighbours(rank)
    for turn in range(WORLD):
        if turn == rank:
            dist.send(place(numbers(rank)), after, tag=5)
        if turn == before:
            dist.recv(received, before if turn else None, tag=5)
    return received


recv = CALLS["recv"] = send


@call
def isend(rank: int, place: Place) -> Any:
    received = place(torch.zeros(5000))
    after, before = neighbours(rank)
    works = [dist.irecv(received, before), dist.isend(place(numbers(rank)), after)]
    for work in works:
        work.wait()
    return received


irecv = CALLS["irecv"] = isend


@call
def batch_isend_irecv(rank: int, place: Place) -> Any:
    after, before = neighbours(rank)
    received = [place(torch.zeros(count)) for count in (7, 50_000)]
    ops = [dist.P2POp(dist.irecv, tensor, before) for tensor in received]
    ops += [dist.P2POp(dist.isend, place(numbers(rank, tensor.numel())), after) for tensor in received]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return received


# ---- objects, which travel as CPU tensors if the group has a backend for those


@call
def all_gather_object(rank: int, place: Place) -> Any:
    objects: list[Any] = [None] * WORLD
    dist.all_gather_object(objects, {"rank": rank, "tensor": place(numbers(rank, 10))})
    return [each["tensor"] for each in objects]


@call
def gather_object(rank: int, place: Place) -> Any:
    objects: list[Any] = [None] * WORLD
    dist.gather_object(place(numbers(rank, 10)), objects if rank == 0 else None, 0)
    return objects if rank == 0 else []


@call
def broadcast_object_list(rank: int, place: Place) -> Any:
    objects: list[Any] = [place(numbers(rank, 10)), None]
    dist.broadcast_object_list(objects, 1)
    return objects[:1]


@call
def scatter_object_list(rank: int, place: Place) -> Any:
    part: list[Any] = [None]
    dist.scatter_object_list(part, [place(numbers(peer, 10)) for peer in range(WORLD)] if rank == 0 else None, 0)
    return part


@call
def send_object_list(rank: int, place: Place) -> Any:
    objects: list[Any] = [place(numbers(rank, 10)), rank]
    if rank == 0:
        dist.send_object_list(objects, 1)
    elif rank == 1:
        dist.recv_object_list(objects, 0)
    return objects[:1]


recv_object_list = CALLS["recv_object_list"] = send_object_list


# ---- forms that have no name in torch.distributed


@call
def asynchronous(rank: int, place: Place) -> Any:
    tensors = [place(numbers(rank, count)) for count in (1, 600, 60_000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    return tensors


@call
def coalesced(rank: int, place: Place) -> Any:
    tensors = [place(numbers(rank + i, 600)) for i in range(3)]
    wholes = [place(torch.zeros(1800)) for _ in range(2)]
    parts = [place(torch.zeros(200)) for _ in range(2)]
    with _coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    with _coalescing_manager(async_ops=True) as manager:
        for whole, tensor in zip(wholes, tensors, strict=False):
            dist.all_gather_into_tensor(whole, tensor)
    manager.wait()
    with _coalescing_manager():
        for part, tensor in zip(parts, tensors, strict=False):
            dist.reduce_scatter_tensor(part, tensor)
    return tensors + wholes + parts


@call
def of_functional_collectives(rank: int, place: Place) -> Any:
    group = dist.group.WORLD
    tensor = place(numbers(rank, 600))
    pair = [tensor, tensor + 1]
    results = [
        functional.all_reduce(tensor, "sum", group),
        functional.broadcast(tensor, 1, group),
        functional.all_gather_tensor(tensor, 0, group),
        functional.reduce_scatter_tensor(tensor, "avg", 0, group),
        functional.all_to_all_single(tensor, None, None, group),
        functional.permute_tensor(tensor, [1, 2, 0], group),
        *functional.all_reduce_coalesced(pair, "max", group),
        *functional.all_gather_into_tensor_coalesced(pair, group),
        *functional.reduce_scatter_tensor_coalesced(pair, "sum", [0, 0], group),
    ]
    return [functional.wait_tensor(result) for result in results]


@call
def with_gradients(rank: int, place: Place) -> Any:
    leaf = place(numbers(rank, 600)).requires_grad_()
    total = differentiable.all_reduce(leaf * 2)
    gathered = torch.cat(differentiable.all_gather(total))
    part = differentiable.reduce_scatter(torch.empty_like(leaf[:200]), list(gathered.chunk(3)[0].chunk(3)))
    (part.square().sum() + differentiable.all_to_all_single(torch.empty_like(leaf), leaf).sum()).backward()
    return [total.detach(), part.detach(), leaf.grad]


@call
def of_qccl(rank: int, place: Place) -> Any:
    results = []
    for compression in (
        "minmax:bits=3",
        "int:bits=4,rounding=stochastic",
        "sign",
        "topk:density=0.1",
        "grid:relative=0.5",
        "grid:entropy=rans,bound=0.01",
        "cast:type=bf16",
    ):
        feedback = qccl.ErrorFeedback(70_000)
        for _ in range(2):
            tensor = place(numbers(rank, 70_000).sin())
            qccl.all_reduce(tensor, dist.ReduceOp.AVG, compression=compression, error_feedback=feedback)
            results.append(tensor)
    return results


@call
def onebit(rank: int, place: Place) -> Any:
    """DeepSpeed's, without DeepSpeed."""
    backend = qccl.deepspeed.CompressedBackend()
    worker, server = place(torch.zeros(48 * WORLD)), place(torch.zeros(48))
    tensor, spread = place(numbers(rank, 130).sin()), place(numbers(rank, 260).cos())[::2]
    for buffer in (tensor, spread):
        backend.compressed_allreduce(buffer, worker, server)
    return [tensor, spread, worker, server]


# ---- the tests


def test_the_table_has_every_call_of_torch_distributed() -> None:
    for name in dist.distributed_c10d.__all__:
        known = name in CALLS or name in HAS_NO_TENSORS or name.startswith("ProcessGroup")
        assert known, f"{name}: add it to the table, or to those without tensors"


def described(value: Any) -> list[tuple[Any, ...]]:
    tensors = [value] if isinstance(value, torch.Tensor) else value
    return [(tensor.dtype, tuple(tensor.shape), tensor.cpu().flatten().tolist()) for tensor in tensors]


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, with gaps in memory."""
    room = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype, device=tensor.device)
    return room[..., 0].copy_(tensor)


def results_of_all(rank: int, device: str, with_gaps: bool = False) -> dict[str, Any]:
    def place(tensor: torch.Tensor) -> torch.Tensor:
        there = tensor.to(device)
        return spread(there) if with_gaps else there

    missing = LATER_CALLS - set(dir(dist))
    if with_gaps:
        missing |= NEED_CONTIGUOUS
    return {name: described(body(rank, place)) for name, body in CALLS.items() if name not in missing}


def test_all_take_tensors_of_a_device_with_the_results_of_the_cpus() -> None:
    def of_both(rank: int) -> Any:
        return [results_of_all(rank, device, gaps) for gaps in (False, True) for device in ("cpu", DEVICE)]

    def of_the_device(rank: int) -> Any:
        return results_of_all(rank, DEVICE)

    both = on_device(of_both, WORLD, longest_delay=2000)
    alone = on_device(of_the_device, WORLD, longest_delay=2000, backend=f"{KIND}:qccl")
    for (expected, beside_cpu, with_gaps, gaps_on_device), only_backend in zip(both, alone, strict=True):
        assert expected.keys() == beside_cpu.keys() == only_backend.keys()
        assert with_gaps.keys() == gaps_on_device.keys() == expected.keys() - NEED_CONTIGUOUS
        for name, result in expected.items():
            assert beside_cpu[name] == result, name
            assert only_backend[name] == result, f"{name}, in a group for the device alone"
            assert with_gaps.get(name, result) == gaps_on_device.get(name, result) == result, f"{name}, with gaps"
