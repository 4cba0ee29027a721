"""Collectives that move tensors without adding them: gather, scatter, all_to_all, uneven lists."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

TRANSPORTS = ("shm", "tcp")
# Types of several sizes, some of which the library has no name for.
TYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2)


def numbered(rank: int, peer: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """The data of `rank` for `peer`."""
    return ((torch.arange(count) + 5 * rank + 3 * peer) % 7).to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.contiguous().view(torch.uint8).equal(b.contiguous().view(torch.uint8))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("world", [1, 3])
def test_gather_and_scatter_of_every_type_from_every_root(world, transport):
    def body(rank):
        for dtype in TYPES:
            for count in (0, 5, 40_000):
                for root in range(world):
                    mine = numbered(rank, root, count, dtype)
                    gathered = [torch.zeros(count, dtype=dtype) for _ in range(world)] if rank == root else None
                    dist.gather(mine, gathered, root)
                    if rank == root:
                        assert all(same(got, numbered(r, root, count, dtype)) for r, got in enumerate(gathered))
                    parts = [numbered(root, peer, count, dtype) for peer in range(world)] if rank == root else None
                    part = torch.zeros(count, dtype=dtype)
                    dist.scatter(part, parts, root)
                    assert same(part, numbered(root, rank, count, dtype))

    run_ranks(body, world, environment={"QCCL_TRANSPORT": transport})


def test_gather_and_scatter_into_parts_of_one_tensor_in_place_and_strided():
    def body(rank):
        whole = torch.zeros(3, 4)
        whole[rank] = rank + 1
        dist.gather(whole[rank], list(whole.unbind()) if rank == 1 else None, 1)
        if rank == 1:
            assert whole[:, 0].tolist() == [1, 2, 3]
        dist.scatter(whole[rank], list(whole.unbind()) if rank == 1 else None, 1)
        assert whole[rank].tolist() == [rank + 1.0] * 4
        columns = torch.zeros(4, 3)
        dist.gather(torch.full((4,), float(rank)), list(columns.unbind(1)) if rank == 0 else None, 0)
        if rank == 0:
            assert columns.tolist() == [[0, 1, 2]] * 4
        strided = torch.zeros(4, 2)[:, 0]
        dist.scatter(strided, list(columns.unbind(1)) if rank == 0 else None, 0)
        assert strided.tolist() == [rank] * 4

    run_ranks(body, 3)


def test_gather_and_scatter_refuse_lists_in_wrong_places():
    def rooted(kind, root):
        options = kind()
        options.rootRank = root
        return options

    def body(rank):
        group, one = dist.group.WORLD, torch.zeros(2)
        with pytest.raises(ValueError, match="all tensors of the list must have 2 elements, one has 3"):
            lists = [[torch.zeros(2), torch.zeros(3)] if rank == 0 else [torch.zeros(3), torch.zeros(2)]]
            group.gather(lists, [one], rooted(dist.GatherOptions, rank))
        with pytest.raises(ValueError, match="takes a list of outputs on the root, and none elsewhere"):
            group.gather([[one, one]], [one], rooted(dist.GatherOptions, 1 - rank))
        with pytest.raises(ValueError, match="takes a list of inputs on the root, and none elsewhere"):
            group.scatter([one], [[one, one]], rooted(dist.ScatterOptions, 1 - rank))

    run_ranks(body)


def test_reduce_of_every_operation_changes_the_root_alone():
    def body(rank):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.complex64):
            for root in range(3):
                tensor = torch.tensor([1, 2, rank + 1]).to(dtype)
                dist.reduce(tensor, root)
                if rank == root:
                    assert tensor.tolist() == [3, 6, 6]
        tensor = torch.full((2, 3), rank + 1.0).t()
        dist.reduce(tensor, 2, dist.ReduceOp.MAX)
        assert bool((tensor == (3 if rank == 2 else rank + 1)).all())
        tensor = torch.tensor([rank + 1.0])
        dist.reduce(tensor, 0, dist.ReduceOp.AVG)
        assert tensor.item() == (2 if rank == 0 else rank + 1)

    run_ranks(body, 3)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_to_all_of_lists_with_any_sizes(transport):
    def count(sender, receiver):
        return (sender * 2 + receiver * 3) % 4 * (1 if receiver else 9000)

    def body(rank):
        for dtype in TYPES:
            inputs = [numbered(rank, peer, count(rank, peer), dtype) for peer in range(3)]
            outputs = [torch.zeros(count(peer, rank), dtype=dtype) for peer in range(3)]
            dist.all_to_all(outputs, inputs)
            assert all(same(got, numbered(peer, rank, count(peer, rank), dtype)) for peer, got in enumerate(outputs))
        strided = [torch.zeros(2, 2).t() for _ in range(3)]
        dist.all_to_all(strided, [torch.full((2, 2), float(rank)) for _ in range(3)])
        assert [tensor[0, 1].item() for tensor in strided] == [0, 1, 2]

    run_ranks(body, 3, environment={"QCCL_TRANSPORT": transport})


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_to_all_single_with_and_without_splits(transport):
    def body(rank):
        even = torch.zeros(6, 2)
        dist.all_to_all_single(even, torch.full((6, 2), float(rank)))
        assert even[:, 1].tolist() == [0, 0, 1, 1, 2, 2]
        # Rank r sends r + p rows to rank p; rank 0's splits happen to be even for some.
        sends = [rank + peer for peer in range(3)]
        received = [peer + rank for peer in range(3)]
        rows = torch.zeros(sum(received), 300)
        dist.all_to_all_single(rows, torch.full((sum(sends), 300), float(rank)), received, sends)
        assert rows[:, 0].tolist() == [peer for peer in range(3) for _ in range(received[peer])]
        # One rank passes its even splits, the others pass none.
        splits = [1, 1, 1] if rank == 0 else None
        mixed = torch.zeros(3, dtype=torch.int32)
        dist.all_to_all_single(mixed, torch.tensor([10, 20, 30], dtype=torch.int32) + rank, splits, splits)
        assert mixed.tolist() == [10 * (rank + 1) + peer for peer in range(3)]
        overlapping = torch.arange(3.0) + 10 * rank
        dist.all_to_all_single(overlapping, overlapping)
        assert overlapping.tolist() == [rank, 10 + rank, 20 + rank]
        with pytest.raises(ValueError, match="3 must divide the input's first dimension, which is 4"):
            dist.all_to_all_single(torch.zeros(3), torch.zeros(4))

    run_ranks(body, 3, environment={"QCCL_TRANSPORT": transport})


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_uneven_lists_of_all_gather_and_reduce_scatter(transport):
    def body(rank):
        sizes = [(2, 3), (0, 3), (4000, 3)]
        for dtype in TYPES:
            mine = numbered(rank, 0, sizes[rank][0] * 3, dtype).view(sizes[rank])
            outputs = [torch.zeros(size, dtype=dtype) for size in sizes]
            dist.all_gather(outputs, mine)
            for peer, output in enumerate(outputs):
                assert same(output, numbered(peer, 0, sizes[peer][0] * 3, dtype).view(sizes[peer]))
        inputs = [torch.full(size, float(rank + 1)) for size in sizes]
        output = torch.zeros(sizes[rank])
        dist.reduce_scatter(output, inputs)
        assert bool((output == 6).all())
        flat = torch.full((7,), float(rank + 1))
        parts = list(flat.split([1, 4, 2]))
        dist.reduce_scatter(parts[rank], parts, dist.ReduceOp.MAX)
        assert bool((parts[rank] == 3).all()), "in place"
        with pytest.raises(ValueError, match="this rank's tensor of the list must have 5 elements, it has"):
            dist.all_gather([torch.zeros(1), torch.zeros(2), torch.zeros(3)], torch.zeros(5))

    run_ranks(body, 3, environment={"QCCL_TRANSPORT": transport})


def test_all_gather_coalesced_gives_a_list_for_each_rank():
    def body(rank):
        inputs = [torch.full((3,), float(rank)), torch.full((2, 2), 10.0 * rank)]
        outputs = [[torch.zeros(3), torch.zeros(2, 2)] for _ in range(2)]
        work = dist.group.WORLD.allgather_coalesced(outputs, inputs)
        value = work.get_future().wait()
        assert [[tensor.flatten()[0].item() for tensor in row] for row in value] == [[0, 0], [1, 10]]
        assert outputs[1][1].tolist() == [[10, 10], [10, 10]]
        with pytest.raises(RuntimeError, match="list of lists"):
            work.result()

    run_ranks(body)


def test_complex_sums_and_conjugate_views():
    def body(rank):
        for dtype in (torch.complex32, torch.complex64, torch.complex128):
            tensor = torch.tensor([1 + 2j, 3 - 1j]).to(dtype) * (rank + 1)
            dist.all_reduce(tensor)
            assert tensor.to(torch.complex64).tolist() == [3 + 6j, 9 - 3j]
        part = torch.zeros(1, dtype=torch.complex64)
        dist.reduce_scatter_tensor(part, torch.tensor([1 + 1j, 2 + 2j]))
        assert part.item() == 2 * (1 + 1j) * (rank + 1)
        conjugate = torch.tensor([1 + 2j]).conj()
        outputs = [torch.zeros(1, dtype=torch.complex64) for _ in range(2)]
        dist.group.WORLD.allgather([outputs], [conjugate]).wait()
        assert [output.item() for output in outputs] == [1 - 2j, 1 - 2j]
        with pytest.raises(NotImplementedError, match="MAX of torch.ComplexFloat"):
            dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([part], dist.ReduceOp.MAX)

    run_ranks(body)
