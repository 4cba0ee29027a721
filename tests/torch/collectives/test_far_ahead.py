"""A rank that posts more collectives than may be in flight waits for its peers, and holds up nothing else."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import run_ranks

IN_FLIGHT = 4096  # of a group of two ranks: qccl/communicator.h
CALLS = IN_FLIGHT + 100
DESTROY_SECONDS = 15.0  # destroying a group gives its operations 10 s, and the group's timeout is longer


def post_sums(tensors, on_posted=lambda number: None):
    works = []
    for number, tensor in enumerate(tensors, 1):
        works.append(dist.all_reduce(tensor, async_op=True))
        on_posted(number)
    for work in works:
        work.wait()


def as_far_ahead_as_may_be(tensors):
    """Starts a thread that posts all sums; returns once its next call waits for room."""
    is_ahead = threading.Event()
    thread = threading.Thread(
        target=post_sums, args=(tensors, lambda n: n == IN_FLIGHT and is_ahead.set()), daemon=True
    )
    thread.start()
    assert is_ahead.wait(60)
    return thread


def test_a_message_passes_collectives_that_wait_for_room():
    def body(rank):
        tensors = [torch.ones(1) for _ in range(CALLS)]
        if rank == 0:
            thread = as_far_ahead_as_may_be(tensors)
            dist.send(torch.ones(1), 1)
            thread.join()
        else:
            dist.recv(torch.zeros(1), 0)  # before it takes part in any collective
            post_sums(tensors)
        assert all(tensor.item() == 2 for tensor in tensors)

    run_ranks(body)


def test_destroying_a_group_does_not_wait_behind_collectives_that_wait_for_room():
    def body(rank):
        other = dist.new_group(backend="gloo")
        if rank == 0:
            as_far_ahead_as_may_be([torch.ones(1) for _ in range(CALLS)])
            started = time.monotonic()
            dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).shutdown()
            assert time.monotonic() - started < DESTROY_SECONDS
        dist.barrier(other)

    run_ranks(body, timeout=timedelta(seconds=60))


def test_a_coalesced_list_may_be_longer_than_what_may_be_in_flight():
    def body(rank):
        tensors = [torch.full((1,), float(number)) for number in range(CALLS)]
        dist.all_reduce_coalesced(tensors)
        assert all(tensor.item() == 2 * number for number, tensor in enumerate(tensors))

    run_ranks(body)
