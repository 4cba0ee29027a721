"""Predictions of the time of calls: qccl.time_estimator(), and torch's own from 2.15 on."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import qccl


def microseconds(call, group=None):
    with qccl.time_estimator(group) as estimate:
        call()
    return estimate.microseconds


def test_one_rank_estimates_calls_that_are_not_made():
    def body(rank):
        if rank == 0:
            tensor = torch.ones(1 << 20)
            before = qccl.traffic()
            small = microseconds(lambda: dist.all_reduce(tensor[:16]))
            large = microseconds(lambda: dist.all_reduce(tensor))
            assert 0 < small < large / 10
            assert microseconds(lambda: [dist.all_reduce(tensor) for _ in range(3)]) == pytest.approx(3 * large)
            assert microseconds(lambda: None) == 0
            assert microseconds(lambda: dist.send(tensor, 1)) > small / 10
            assert tensor.eq(1).all() and qccl.traffic() == before
        tensor = torch.ones(8)
        dist.all_reduce(tensor)
        assert tensor[0].item() == 2, "the ranks are in step"

    run_ranks(body)


def test_every_call_has_an_estimate_and_a_work_that_has_ended():
    def body(rank):
        part, whole = torch.ones(1000), torch.zeros(2000)
        parts = list(whole.chunk(2))
        calls = [
            lambda: dist.broadcast(part, 1, async_op=True),
            lambda: dist.reduce(part, 1, async_op=True),
            lambda: dist.all_gather(parts, part, async_op=True),
            lambda: dist.all_gather_into_tensor(whole, part, async_op=True),
            lambda: dist.reduce_scatter_tensor(part, whole, async_op=True),
            lambda: dist.all_to_all_single(whole, torch.ones(2000), async_op=True),
            lambda: dist.gather(part, parts if rank == 0 else None, async_op=True),
            lambda: dist.scatter(part, parts if rank == 0 else None, async_op=True),
            lambda: dist.barrier(async_op=True),
            lambda: dist.isend(part, 1 - rank),
            lambda: dist.irecv(part, 1 - rank),
        ]
        for call in calls:
            works = []
            assert microseconds(lambda call=call, works=works: works.append(call())) > 0
            assert works[0].is_completed() and works[0].wait()
        assert part.eq(1).all() and whole.eq(0).all()
        assert microseconds(lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, part, 1 - rank)])) > 0

    run_ranks(body)


def test_compression_changes_the_estimate():
    def body(rank):
        tensor = torch.ones(1 << 20)
        plain = microseconds(lambda: dist.all_reduce(tensor))
        coded = microseconds(lambda: qccl.all_reduce(tensor, compression="minmax:bits=4"))
        return plain, coded

    environment = {"QCCL_LINK_RATE": "100mbit"}
    plain, coded = run_ranks(body, environment=environment)[0]
    assert coded < plain / 4, "a slow line is a matter of bytes"


def test_sparse_sums_have_no_estimate():
    def body(rank):
        sparse = torch.ones(4).to_sparse()
        with pytest.raises(NotImplementedError, match="depends on other ranks"):
            microseconds(lambda: dist.all_reduce(sparse))
        assert microseconds(lambda: dist.all_reduce(torch.ones(4))) > 0, "the estimate has ended"

    run_ranks(body)


@pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d.Backend, "_start_time_estimate"), reason="torch has it from 2.15 on"
)
def test_torchs_time_estimator_agrees():
    def body(rank):
        tensor = torch.ones(1 << 20)
        with dist.distributed_c10d._time_estimator() as estimate:
            dist.all_reduce(tensor)
        assert estimate.estimated_time == pytest.approx(microseconds(lambda: dist.all_reduce(tensor)))

    run_ranks(body)
