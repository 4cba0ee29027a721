"""Every collective of torch.distributed that the backend has, against results computed by hand."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
INTEGERS += (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
TRANSPORTS = ("shm", "tcp")


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Small integers, so that sums and products are exact in every type."""
    return (torch.arange(count) % 3 + 1 + rank).to(dtype)


def reduced(op: dist.ReduceOp, world: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    rows = torch.stack([values(rank, count, torch.float64) for rank in range(world)])
    result = {
        dist.ReduceOp.SUM: rows.sum(0),
        dist.ReduceOp.AVG: rows.mean(0),
        dist.ReduceOp.PRODUCT: rows.prod(0),
        dist.ReduceOp.MIN: rows.amin(0),
        dist.ReduceOp.MAX: rows.amax(0),
    }[op]
    return result.to(dtype)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("world", [1, 2, 3])
def test_all_reduce_of_every_type_and_operation(world, transport):
    def body(rank):
        for dtype in FLOATS + INTEGERS:
            ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
            if dtype.is_floating_point:
                ops.append(dist.ReduceOp.AVG)
            for op in ops:
                for count in (0, 1, 5, 70_000):
                    tensor = values(rank, count, dtype)
                    dist.all_reduce(tensor, op)
                    wanted = reduced(op, world, count, dtype)
                    # As doubles: torch does not compare every unsigned type.
                    torch.testing.assert_close(tensor.double(), wanted.double(), msg=f"{dtype} {op} {count}")

    run_ranks(body, world, environment={"QCCL_TRANSPORT": transport})


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bitwise_operations_of_every_integer(transport):
    results = {dist.ReduceOp.BAND: 0b1000, dist.ReduceOp.BOR: 0b1110, dist.ReduceOp.BXOR: 0b0110}

    def body(rank):
        for dtype in INTEGERS:
            for count in (3, 20_000):
                for op, wanted in results.items():
                    tensor = torch.full((count,), 0b1100 if rank == 0 else 0b1010).to(dtype)
                    dist.all_reduce(tensor, op)
                    assert tensor.tolist() == [wanted] * count, f"{dtype} {op}"
        whole = torch.tensor([0b01, 0b11]) << rank
        part = torch.zeros(1, dtype=torch.int64)
        dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.BXOR)
        assert part.item() == (0b11, 0b101)[rank]
        with pytest.raises(ValueError, match="bor of float32 is not defined.*has sum, avg"):
            dist.all_reduce(torch.ones(3), dist.ReduceOp.BOR)

    run_ranks(body, environment={"QCCL_TRANSPORT": transport})


def test_premul_sum_multiplies_by_each_ranks_own_number_or_tensor():
    def body(rank):
        for dtype in FLOATS:
            for count in (3, 20_000):
                tensor = torch.full((count,), 4.0, dtype=dtype)
                dist.all_reduce(tensor, dist._make_nccl_premul_sum((0.5, -3.0)[rank]))
                assert tensor.tolist() == [-10.0] * count, dtype
                tensor = torch.full((count,), 4.0, dtype=dtype)
                dist.all_reduce(tensor, dist._make_nccl_premul_sum(torch.tensor([0.25 * (rank + 1)])))
                assert tensor.tolist() == [3.0] * count, dtype
        part = torch.zeros(2)
        dist.reduce_scatter_tensor(part, torch.arange(4.0), dist._make_nccl_premul_sum(2.0))
        assert part.tolist() == [[0, 4], [8, 12]][rank]
        with pytest.raises(ValueError, match="premul_sum of int64 is not defined"):
            dist.all_reduce(torch.ones(3, dtype=torch.int64), dist._make_nccl_premul_sum(2.0))

    run_ranks(body)


def test_booleans_stay_zero_or_one():
    def body(rank):
        def result(op):
            tensor = torch.tensor([False, True, rank == 0, rank == 1])
            dist.all_reduce(tensor, op)
            assert tensor.dtype == torch.bool
            assert set(tensor.view(torch.uint8).tolist()) <= {0, 1}
            return tensor.tolist()

        for any_op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.BOR):
            assert result(any_op) == [False, True, True, True]
        for all_op in (dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.BAND):
            assert result(all_op) == [False, True, False, False]
        assert result(dist.ReduceOp.BXOR) == [False, False, True, True]
        with pytest.raises(ValueError, match="avg of bool"):
            result(dist.ReduceOp.AVG)

        odd = torch.tensor([0, 2, 255], dtype=torch.uint8).view(torch.bool)
        dist.all_reduce(odd)
        assert odd.view(torch.uint8).tolist() == [0, 1, 1]

    run_ranks(body)


def test_shapes_that_are_easy_to_get_wrong():
    def body(rank):
        scalar = torch.tensor(rank + 1.0)
        dist.all_reduce(scalar)
        assert scalar.shape == () and scalar.item() == 3

        whole = torch.full((6, 8), float(rank + 1))
        dist.all_reduce(whole[:, ::2])
        assert torch.equal(whole[:, ::2], torch.full((6, 4), 3.0))
        assert torch.equal(whole[:, 1::2], torch.full((6, 4), rank + 1.0)), "neighbours of a strided view are untouched"

        image = torch.full((2, 3, 4, 5), rank + 1.0).to(memory_format=torch.channels_last)
        dist.all_reduce(image)
        assert image.is_contiguous(memory_format=torch.channels_last) and bool((image == 3).all())

        parameter = torch.full((4, 4), rank + 1.0, requires_grad=True)
        dist.all_reduce(parameter.t())
        assert bool((parameter == 3).all()) and parameter.grad_fn is None

        with torch.inference_mode():
            inference = torch.full((3,), rank + 1.0)
            dist.all_reduce(inference)
        assert inference.tolist() == [3, 3, 3]

    run_ranks(body)


# If ranks that only read the tensor accepted it, they would make the call alone and lose the group.
def test_a_tensor_whose_elements_share_memory_is_refused_on_every_rank_and_the_group_goes_on():
    def body(rank):
        for collective in (dist.all_reduce, lambda t: dist.broadcast(t, 1), lambda t: dist.reduce(t, 1)):
            with pytest.raises(ValueError, match="share memory"):
                collective(torch.ones(1).expand(4))
        total = torch.full((4,), rank + 1.0)
        dist.all_reduce(total)
        assert total.tolist() == [3.0] * 4

    run_ranks(body)


def test_tensors_of_one_storage_reduce_side_by_side():
    def body(rank):
        storage = torch.full((100,), rank + 1.0)
        works = [dist.all_reduce(part, async_op=True) for part in storage.chunk(7)]
        for work in reversed(works):
            work.wait()
        assert bool((storage == 3).all())

    run_ranks(body)


def test_all_reduce_coalesced():
    def body(rank):
        tensors = [torch.full((n,), rank + 1.0) for n in (1, 0, 5000)]
        with dist._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        assert all(bool((tensor == 3).all()) for tensor in tensors)

    run_ranks(body)


def test_broadcast_moves_every_type():
    everything = FLOATS + INTEGERS + (torch.bool, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.complex64)
    everything += (torch.float8_e4m3fn,)

    def body(rank):
        for root in range(3):
            for dtype in everything:
                source = torch.tensor([0, 1, root + 1, 1]).to(dtype)
                tensor = source.clone() if rank == root else torch.zeros(4, dtype=dtype)
                dist.broadcast(tensor, root)
                assert tensor.view(torch.uint8).tolist() == source.view(torch.uint8).tolist(), f"{dtype} from {root}"
        strided = torch.full((4, 6), float(rank))
        dist.broadcast(strided[:, 1::2], 2)
        assert bool((strided[:, 1::2] == 2).all()) and bool((strided[:, ::2] == rank).all())

    run_ranks(body, 3)


def test_all_gather_into_separate_strided_and_adjacent_tensors():
    def body(rank):
        mine = torch.arange(6.0).view(2, 3) + 10 * rank
        expected = [torch.arange(6.0).view(2, 3) + 10 * peer for peer in range(3)]

        separate = [torch.zeros(2, 3) for _ in range(3)]
        dist.all_gather(separate, mine)
        strided = [torch.zeros(3, 2).t() for _ in range(3)]
        dist.all_gather(strided, mine)
        adjacent = torch.zeros(3, 2, 3)
        dist.all_gather(list(adjacent.unbind()), mine)
        in_place = torch.zeros(3, 2, 3)
        in_place[rank] = mine
        dist.all_gather(list(in_place.unbind()), in_place[rank])
        overlapping = torch.zeros(3, 2, 3)
        overlapping[(rank + 1) % 3] = mine
        dist.all_gather(list(overlapping.unbind()), overlapping[(rank + 1) % 3])
        for result in (separate, strided, adjacent, in_place, overlapping):
            for got, want in zip(result, expected, strict=True):
                assert torch.equal(got, want)

        nothing = [torch.zeros(0) for _ in range(3)]
        dist.all_gather(nothing, torch.zeros(0))

    run_ranks(body, 3)


def test_all_gather_into_tensor():
    def body(rank):
        gathered = torch.zeros(2 * 4, dtype=torch.int16)
        dist.all_gather_into_tensor(gathered, torch.full((4,), rank + 1, dtype=torch.int16))
        assert gathered.tolist() == [1] * 4 + [2] * 4

        outputs = [torch.zeros(2 * n) for n in (3, 1)]
        with dist._coalescing_manager():
            for n, output in zip((3, 1), outputs, strict=True):
                dist.all_gather_into_tensor(output, torch.full((n,), rank + 1.0))
        assert outputs[0].tolist() == [1, 1, 1, 2, 2, 2] and outputs[1].tolist() == [1, 2]

    run_ranks(body)


def test_reduce_scatter_from_lists_and_tensors():
    def body(rank):
        rows = torch.arange(12.0).view(3, 4) * (rank + 1)
        mine = (torch.arange(12.0).view(3, 4) * 6)[rank]

        output = torch.zeros(4)
        dist.reduce_scatter(output, [row.clone() for row in rows])
        assert torch.equal(output, mine)
        output.zero_()
        dist.reduce_scatter(output, list(rows.unbind()))
        assert torch.equal(output, mine)
        output.zero_()
        dist.reduce_scatter_tensor(output, rows.flatten())
        assert torch.equal(output, mine)
        strided = torch.zeros(8)[::2]
        dist.reduce_scatter_tensor(strided, rows.flatten(), op=dist.ReduceOp.AVG)
        torch.testing.assert_close(strided, mine / 3)
        flat = rows.flatten().clone()
        dist.reduce_scatter_tensor(flat[4 * rank : 4 * rank + 4], flat)
        assert torch.equal(flat[4 * rank : 4 * rank + 4], mine)

        outputs = [torch.zeros(4), torch.zeros(1)]
        with dist._coalescing_manager():
            dist.reduce_scatter_tensor(outputs[0], rows.flatten())
            dist.reduce_scatter_tensor(outputs[1], torch.ones(3))
        assert torch.equal(outputs[0], mine) and outputs[1].item() == 3

    run_ranks(body, 3)


def test_barrier_also_waits_for_work_nobody_waited_for():
    def body(rank):
        whole = torch.full((400, 500), rank + 1.0)
        dist.all_reduce(whole[:, ::2], async_op=True)
        dist.barrier()
        assert bool((whole[:, ::2] == 3).all())

        whole = torch.full((400, 500), rank + 1.0)
        dist.all_reduce(whole[:, ::2], async_op=True)
        dist.barrier(async_op=True).wait()
        assert bool((whole[:, ::2] == 3).all())

    run_ranks(body)


def test_object_collectives():
    def body(rank):
        gathered = [None] * 3
        dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (100 * rank)})
        assert gathered == [{"rank": peer, "text": "x" * (100 * peer)} for peer in range(3)]
        objects = [{"a": 1}, "two", rank] if rank == 1 else [None] * 3
        dist.broadcast_object_list(objects, 1)
        assert objects == [{"a": 1}, "two", 1]

    run_ranks(body, 3)


def test_functional_collectives():
    from torch.distributed import _functional_collectives as functional

    def body(rank):
        group = dist.group.WORLD
        assert functional.all_reduce(torch.full((3,), rank + 1.0), "sum", group).tolist() == [3, 3, 3]
        assert functional.all_gather_tensor(torch.tensor([rank]), 0, group).tolist() == [0, 1]
        assert functional.reduce_scatter_tensor(torch.ones(4), "sum", 0, group).tolist() == [2, 2]
        assert functional.broadcast(torch.tensor([rank]), 1, group).tolist() == [1]

    run_ranks(body)


def test_reductions_that_do_not_exist_say_so():
    def body(rank):
        one = torch.ones(1)
        calls = {
            "all_reduce with SUM of torch.Float8_e4m3fn": lambda: dist.all_reduce(one.to(torch.float8_e4m3fn)),
        }
        for name, call in calls.items():
            with pytest.raises(NotImplementedError, match=f"{name}.*not supported by the qccl backend"):
                call()
        dist.all_reduce(one)
        assert one.item() == 2, "the group still works after refusals"

    run_ranks(body)


def test_sequence_numbers_count_collectives_alike_on_every_rank():
    def body(rank):
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        before = group._get_sequence_number_for_group()
        dist.all_reduce(torch.ones(1))
        dist.barrier()
        assert group._get_sequence_number_for_group() == before + 2
        return group._get_sequence_number_for_group()

    assert len(set(run_ranks(body, 3))) == 1
