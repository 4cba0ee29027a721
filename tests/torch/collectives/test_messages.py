"""Sends and receives: tags, any source, order, batches."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import needs_unsorted_groups, run_ranks

from qccl import _C

TRANSPORTS = ("shm", "tcp")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("count", [0, 1, 500_000])
def test_send_and_recv_move_every_type(count, transport):
    types = (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn)

    def body(rank):
        for dtype in types:
            sent = (torch.arange(count) % 2).to(dtype)
            if rank == 0:
                dist.send(sent, 1)
            else:
                received = torch.zeros(count, dtype=dtype)
                assert dist.recv(received, 0) == 0
                assert received.view(torch.uint8).equal(sent.view(torch.uint8))

    run_ranks(body, environment={"QCCL_TRANSPORT": transport})


def test_tags_are_matched_whatever_the_order_and_one_tag_keeps_its_order():
    def body(rank):
        if rank == 0:
            for value, tag in ((1, 7), (2, 3), (3, 7), (4, 2**30 - 1)):
                dist.send(torch.tensor([value]), 1, tag=tag)
            return None
        got = []
        for tag in (2**30 - 1, 3, 7, 7):
            tensor = torch.tensor([0])
            dist.recv(tensor, 0, tag=tag)
            got.append(tensor.item())
        return got

    assert run_ranks(body)[1] == [4, 2, 1, 3]


@needs_unsorted_groups
def test_recv_from_any_source_says_the_source():
    def body(rank):
        group = dist.new_group([2, 0, 1], sort_ranks=False)
        if rank != 0:
            dist.send(torch.tensor([rank]), 0, group=group)
            return
        sources = set()
        for _ in range(2):
            tensor = torch.tensor([0])
            source = dist.recv(tensor, group=group)
            assert source == tensor.item(), "by its rank in the job"
            sources.add(source)
        assert sources == {1, 2}

    run_ranks(body, 3)


def test_batches_exchange_in_any_pattern():
    def body(rank):
        left, right = (rank - 1) % 3, (rank + 1) % 3
        for count in (1, 300_000):
            mine = torch.full((count,), float(rank))
            from_left, from_right = torch.zeros(count), torch.zeros(count)
            operations = [
                dist.P2POp(dist.irecv, from_left, left),
                dist.P2POp(dist.irecv, from_right, right),
                dist.P2POp(dist.isend, mine, right),
                dist.P2POp(dist.isend, mine, left),
            ]
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            assert from_left[0].item() == left and from_right[-1].item() == right

    run_ranks(body, 3)


def test_coalesced_collectives_and_messages_end_together():
    def body(rank):
        reduced, outputs = torch.ones(3), [torch.zeros(1), torch.zeros(1)]
        device = torch.device("cpu")
        with dist._coalescing_manager(device=device, async_ops=True) as manager:
            dist.broadcast(reduced, 0)
            dist.all_gather(outputs, torch.tensor([float(rank)]))
            part = dist.isend(torch.tensor([rank]), 1 - rank)
            received = torch.tensor([0])
            dist.irecv(received, 1 - rank)
            assert not part.is_completed()
        manager.wait()
        assert part.is_completed() and part.is_success() and part.wait()
        assert [output.item() for output in outputs] == [0, 1] and received.item() == 1 - rank
        with dist._coalescing_manager(device=device):
            pass
        group = dist.group.WORLD._get_backend(device)
        with pytest.raises(RuntimeError, match="are not being coalesced"):
            group._end_coalescing()
        dist.all_reduce(reduced)
        assert reduced.tolist() == [2, 2, 2]

    run_ranks(body)


def test_messages_pass_collectives_and_are_not_counted_with_them():
    def body(rank):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        before = backend._get_sequence_number_for_group()
        received = torch.zeros(100_000)
        if rank == 0:
            work = dist.irecv(received, 1)
            dist.barrier()
        else:
            dist.barrier()
            dist.send(torch.ones(100_000), 0)
            work = None
        if work:
            work.wait()
            assert received[-1].item() == 1
        assert backend._get_sequence_number_for_group() == before + 1

    run_ranks(body)


def test_a_dropped_send_arrives():
    def body(rank):
        for size in (10, 400_000):
            if rank == 0:
                dist.isend(torch.full((size,), 3.0), 1)
            else:
                tensor = torch.zeros(size)
                dist.recv(tensor, 0)
                assert tensor[-1].item() == 3
        dist.barrier()

    run_ranks(body)


def test_strided_messages_and_object_lists():
    def body(rank):
        table = torch.arange(6.0).view(2, 3) if rank == 0 else torch.zeros(2, 3)
        if rank == 0:
            dist.send(table.t(), 1)
            dist.send_object_list([{"a": 1}, "text"], 1)
        else:
            dist.recv(table[:, 1:].t().contiguous().new_zeros(3, 2), 0) and None
            objects = [None, None]
            dist.recv_object_list(objects, 0)
            assert objects == [{"a": 1}, "text"]
        column = torch.zeros(4, 2)
        if rank == 0:
            dist.send(torch.arange(4.0), 1)
        else:
            dist.recv(column[:, 1], 0)
            assert column.tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]

    run_ranks(body)


def test_sizes_that_differ_fail_on_both_ranks():
    def body(rank):
        group = dist.new_group()
        with pytest.raises(dist.DistError, match="send|recv"):
            if rank == 0:
                dist.send(torch.zeros(100_000), 1, group=group)
            else:
                dist.recv(torch.zeros(99_999), 0, group=group)
        with pytest.raises(ValueError, match="the tag must be from 0 to 1073741823, it is -1"):
            dist.group.WORLD._get_backend(torch.device("cpu")).send([torch.zeros(1)], 1 - rank, -1)

    run_ranks(body)


def test_a_message_that_nobody_sends_misses_the_groups_timeout():
    def body(rank):
        other = dist.new_group(backend="gloo")
        dist.group.WORLD.set_timeout(timedelta(seconds=1))
        if rank == 0:
            work = dist.irecv(torch.zeros(1), 1)
            with pytest.raises(dist.DistNetworkError, match="recv.* timeout ") as caught:
                work.wait()
            assert "rank 1" in str(caught.value)
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            assert _C.get_error(backend) == 1, "c10d's ErrorType::TIMEOUT"
        dist.barrier(other)

    run_ranks(body)
