"""Calls of a ProcessGroup with several tensors per rank, compared with the same calls over gloo."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

WORLD = 3


def pair(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.full(shape, 3 * rank + 1).to(dtype), torch.full(shape, 5 * rank + 2).to(dtype)]


def assert_as_gloo(call, rank):
    gloo, ours = (call(group, rank) for group in (gloo_group(), dist.group.WORLD))
    torch.testing.assert_close(ours, gloo, rtol=0, atol=0)


def gloo_group():
    return dist.new_group(backend="gloo")


def finish(work):
    """The future's value; its tensors are the caller's."""
    work.wait()
    return work.get_future().value()


@pytest.mark.parametrize("shape", [(4,), (300, 200), ()])
def test_all_reduce_adds_over_tensors_and_ranks(shape):
    def body(rank):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
            for dtype in (torch.float32, torch.int64, torch.uint8):

                def reduce(group, rank, op=op, dtype=dtype):
                    options = dist.AllreduceOptions()
                    options.reduceOp = op
                    tensors = pair(rank, shape, dtype)
                    value = finish(group.allreduce(tensors, options))
                    assert all(got.data_ptr() == given.data_ptr() for got, given in zip(value, tensors, strict=True))
                    return value

                assert_as_gloo(reduce, rank)

    run_ranks(body, WORLD)


def test_all_reduce_of_bits_and_of_one_tensor_twice_and_strided():
    def body(rank):
        for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):

            def bits(group, rank, op=op):
                options = dist.AllreduceOptions()
                options.reduceOp = op
                return finish(group.allreduce(pair(rank, (5,), torch.int32), options))

            assert_as_gloo(bits, rank)
        assert_as_gloo(lambda group, rank: finish(group.allreduce([pair(rank, (5,))[0]] * 2)), rank)
        assert_as_gloo(lambda group, rank: finish(group.allreduce([t.t() for t in pair(rank, (5, 3))])), rank)

    run_ranks(body, WORLD)


@pytest.mark.parametrize("shape", [(4,), (300, 200)])
@pytest.mark.parametrize("root_tensor", [0, 1])
def test_broadcast_gives_the_roots_tensor_to_all(shape, root_tensor):
    def body(rank):
        def send(group, rank):
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = 1, root_tensor
            return finish(group.broadcast(pair(rank, shape), options))

        assert_as_gloo(send, rank)

    run_ranks(body, WORLD)


@pytest.mark.parametrize("shape", [(4,), (300, 200)])
def test_all_gather_fills_every_list_with_every_ranks_inputs(shape):
    def body(rank):
        def gather(group, rank):
            outputs = [[torch.zeros(shape) for _ in range(2 * WORLD)] for _ in range(2)]
            return finish(group.allgather(outputs, pair(rank, shape)))

        assert_as_gloo(gather, rank)

    run_ranks(body, WORLD)


def test_what_several_tensors_cannot_do_is_refused_by_name():
    def body(rank):
        group, two = dist.group.WORLD, [torch.ones(2), torch.ones(2)]
        with pytest.raises(ValueError, match=r"one type and shape, got torch.Float\[2\] and torch.Float\[3\]"):
            group.allreduce([torch.ones(2), torch.ones(3)])
        with pytest.raises(ValueError, match=r"one type and shape, got torch.Float\[2\] and torch.Double\[2\]"):
            group.allreduce([torch.ones(2), torch.ones(2).double()])
        average = dist.AllreduceOptions()
        average.reduceOp = dist.ReduceOp.AVG
        with pytest.raises(NotImplementedError, match="all_reduce with AVG takes one tensor a rank, got 2"):
            group.allreduce(two, average)  # gloo divides one of the two
        with pytest.raises(ValueError, match="takes one tensor a rank, got 2"):
            group.allreduce([torch.ones(2).to_sparse()] * 2)
        options = dist.BroadcastOptions()
        options.rootTensor = 2
        with pytest.raises(ValueError, match="broadcast: the root tensor must be one of 2, it is number 2"):
            group.broadcast(two, options)
        with pytest.raises(ValueError, match="all_gather: needs a list of outputs for each input, got 1 for 2"):
            group.allgather([[torch.ones(2)] * 4], two)
        with pytest.raises(ValueError, match="each list must have 4 tensors, one has 2"):
            group.allgather([two, two], two)
        options = dist.ReduceOptions()
        options.rootTensor = 1
        with pytest.raises(ValueError, match="reduce: the root tensor must be number 0, it is 1"):
            group.reduce([torch.ones(2)], options)
        with pytest.raises(ValueError, match="reduce: takes one tensor a rank, got 2"):
            group.reduce(two)
        dist.all_reduce(two[0])

    run_ranks(body)
