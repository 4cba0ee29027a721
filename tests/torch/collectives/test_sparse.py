"""all_reduce of sparse tensors, against the sum of the dense ones."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import qccl


def random_sparse(rank, size, sparse_dim, elements, dtype=torch.float32):
    """A sparse tensor with duplicate indices; values are small integers, so that every sum is exact."""
    generator = torch.Generator().manual_seed(10 * rank + elements)
    rows = [torch.randint(extent, (elements,), generator=generator) for extent in size[:sparse_dim]]
    values = torch.randint(-4, 5, (elements, *size[sparse_dim:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(torch.stack(rows), values, size)


def dense_sum(world, size, sparse_dim, counts):
    return sum(random_sparse(rank, size, sparse_dim, counts(rank)).to_dense() for rank in range(world))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_sums_with_any_number_of_elements_a_rank(world, transport):
    shapes = [((50,), 1), ((6, 7), 2), ((100, 8), 1), ((4, 5, 3, 2), 2)]
    amounts = [lambda rank: 20, lambda rank: 13 * rank, lambda rank: 5 if rank == 0 else 0, lambda rank: 3000]

    def body(rank):
        for size, sparse_dim in shapes:
            for counts in amounts:
                tensor = random_sparse(rank, size, sparse_dim, counts(rank))
                dist.all_reduce(tensor)
                assert tensor.is_coalesced() and tensor.sparse_dim() == sparse_dim
                assert torch.equal(tensor.to_dense(), dense_sum(world, size, sparse_dim, counts))

    run_ranks(body, world, environment={"QCCL_TRANSPORT": transport})


def test_every_type_average_and_factor():
    def body(rank):
        types = (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.complex64)
        for dtype in types:
            tensor = torch.sparse_coo_tensor([[0, 2, 2]], torch.tensor([1, 2, rank]).to(dtype), (4,))
            dist.group.WORLD.allreduce([tensor]).wait()  # dist.all_reduce() copies complex tensors
            assert tensor.dtype == dtype and tensor.to_dense().tolist() == [3, 0, 9, 0]
        # 3 x 2048 + 1 x 3 in float16: every addition loses an addend unless the sum is kept in float32.
        tensor = torch.sparse_coo_tensor([[0, 0]], torch.tensor([2048.0, 1.0], dtype=torch.float16), (1,))
        dist.all_reduce(tensor)
        assert tensor.to_dense().item() == torch.tensor(6147.0).half().item()
        tensor = torch.sparse_coo_tensor([[1]], torch.tensor([rank + 1.0]), (2,))
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        assert tensor.to_dense().tolist() == [0, 2]
        tensor = torch.sparse_coo_tensor([[1]], torch.tensor([1.0]), (2,))
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(rank + 1.0))
        assert tensor.to_dense().tolist() == [0, 6]

    run_ranks(body, 3)


def test_many_in_flight_beside_dense_ones_sync_on_one_rank_and_async_on_the_other():
    def body(rank):
        works, tensors = [], []
        for n in range(20):
            sparse = torch.sparse_coo_tensor([[n, 30]], torch.tensor([1.0, rank]), (40,))
            dense = torch.full((5,), float(n))
            works.append(dist.all_reduce(sparse, async_op=rank == 0 or n % 3 == 0))
            works.append(dist.all_reduce(dense, async_op=True))
            tensors.append((sparse, dense))
        for work in reversed(works):
            if work is not None:
                work.wait()
        for n, (sparse, dense) in enumerate(tensors):
            assert sparse.to_dense()[n].item() == 2 and sparse.to_dense()[30].item() == 1
            assert dense[0].item() == 2 * n

    run_ranks(body)


def test_nobody_waits():
    def body(rank):
        tensor = torch.sparse_coo_tensor([[rank]], torch.tensor([1.0]), (3,))
        future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0].to_dense().tolist())
        assert future.wait() == [1, 1, 0]
        dropped = torch.sparse_coo_tensor([[rank]], torch.tensor([1.0]), (3,))
        dist.all_reduce(dropped, async_op=True)
        dist.barrier()
        assert dropped.to_dense().tolist() == [1, 1, 0]

    run_ranks(body)


def test_differences_between_ranks_fail_on_all_of_them():
    def body(rank):
        with pytest.raises(ValueError, match=r"rank 0 of the group has size \[5\].*rank 1 has size \[6\]"):
            dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (5 + rank,)))
        tensor = torch.sparse_coo_tensor([[0]], [1.0], (5,))
        dist.all_reduce(tensor)
        assert tensor.to_dense()[0].item() == 2, "the group goes on"
        with pytest.raises(ValueError, match="only SUM, AVG and PREMUL_SUM"):
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        with pytest.raises(ValueError, match="floating point"):
            dist.all_reduce(tensor.long(), dist.ReduceOp.AVG)
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(tensor if rank else torch.ones(5))

    run_ranks(body)


def test_embeddings_with_sparse_gradients_train_as_dense_ones():
    def body(rank):
        results = []
        for sparse in (True, False):
            torch.manual_seed(5)
            model = DistributedDataParallel(nn.Sequential(nn.Embedding(30, 4, sparse=sparse), nn.Linear(4, 1)))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                optimizer.zero_grad()
                model(torch.arange(step, step + 4 + 3 * rank) % 9).sum().backward()
                optimizer.step()
            results.append([parameter.detach() for parameter in model.parameters()])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b)

    run_ranks(body)


def test_qccls_own_all_reduce_adds_sparse_tensors_but_never_compresses_them():
    def body(rank):
        def rows():
            return torch.sparse_coo_tensor([[rank, 2]], torch.ones(2, 3), (5, 3))

        for how in ({}, {"compression": "none"}, {"async_op": True}):
            tensor = rows()
            work = qccl.all_reduce(tensor, **how)
            if work is not None:
                work.wait()
            assert tensor.to_dense()[:, 0].tolist() == [1, 1, 2, 0, 0]
        for how in ({"compression": "minmax:bits=4"}, {"error_feedback": qccl.ErrorFeedback(15)}):
            with pytest.raises(NotImplementedError, match="sparse tensors are never compressed"):
                qccl.all_reduce(rows(), **how)

    run_ranks(body)
