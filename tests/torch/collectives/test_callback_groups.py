"""Calls of the program while a callback waits in a collective that other ranks do not join."""

import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT, run_ranks

import qccl

AT_ONCE_SECONDS = 5.0  # far below the group's timeout
DESTROY_SECONDS = 15.0  # destroying a group gives its operations 10 s


def add_callback(work, group, collectives):
    """Adds a callback that makes this many all_reduces in `group`, and returns an event set before the last one."""
    last = threading.Event()
    options = dist.AllreduceOptions()
    options.asyncOp = False  # like dist.all_reduce(), which can't be called in a group that is being destroyed

    def callback(_):
        for n in range(collectives):
            if n == collectives - 1:
                last.set()
            group.allreduce([torch.ones(100_000)], options).wait()

    return work.get_future().then(callback), last


def alone_in_a_callback(action, collectives):
    """Calls action(group, future) on rank 0 while the last of its callback's collectives waits for rank 1."""

    def body(rank):
        other = dist.new_group(backend="gloo")
        group = dist.new_group()
        if rank == 0:
            work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
            future, last = add_callback(work, group, collectives)
            dist.barrier(other)
            last.wait()
            action(group, future)
        else:
            dist.barrier(other)  # so that rank 0's callback is not added to a complete future, and runs on the pool
            work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
            add_callback(work, group, collectives - 1)[0].wait()
        dist.barrier(other)

    run_ranks(body)


def took(function, *arguments):
    started = time.monotonic()
    function(*arguments)
    return time.monotonic() - started


def change_settings(group):
    """Changes settings for a second: by then the callback surely waits, and nothing signals when it does."""
    started = time.monotonic()
    while time.monotonic() - started < 1:
        assert took(qccl.set_compression, group, "none") < AT_ONCE_SECONDS
        assert took(group.set_timeout, TIMEOUT) < AT_ONCE_SECONDS


# With one collective the callback is making the group for it, with two it is in the second one.
@pytest.mark.parametrize("collectives", [1, 2])
def test_settings_and_abort_do_not_wait_for_a_callback(collectives):
    def action(group, future):
        change_settings(group)
        assert took(group._get_backend(torch.device("cpu")).abort) < AT_ONCE_SECONDS
        started = time.monotonic()
        with pytest.raises(RuntimeError, match="aborted the process group"):
            future.wait()
        assert time.monotonic() - started < AT_ONCE_SECONDS

    alone_in_a_callback(action, collectives)


@pytest.mark.parametrize("collectives", [1, 2])
def test_destroying_a_group_ends_what_a_callback_waits_for(collectives):
    def action(group, future):
        change_settings(group)
        assert took(dist.destroy_process_group, group) < DESTROY_SECONDS
        with pytest.raises(RuntimeError, match="destroyed the process group while operations were in flight"):
            future.wait()

    alone_in_a_callback(action, collectives)


def test_a_callback_learns_at_once_that_another_rank_has_aborted_the_group():
    def body(rank):
        other = dist.new_group(backend="gloo")
        group = dist.new_group()
        work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
        work.wait()
        dist.barrier(other)
        if rank == 1:
            group._get_backend(torch.device("cpu")).abort()
        else:
            with pytest.raises(dist.DistBackendError, match="aborted the process group"):
                dist.barrier(group)
            future, _ = add_callback(work, group, 1)
            started = time.monotonic()
            with pytest.raises(RuntimeError, match="aborted the process group"):
                future.wait()
            assert time.monotonic() - started < AT_ONCE_SECONDS
        dist.barrier(other)

    run_ranks(body)


def test_settings_made_while_a_callback_makes_its_group_hold_in_it():
    def body(rank):
        other = dist.new_group(backend="gloo")
        group = dist.new_group()
        before = qccl.traffic().payload_bytes_sent
        if rank == 1:
            dist.barrier(other)
        work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
        if rank == 0:
            future, last = add_callback(work, group, 1)
            dist.barrier(other)
            last.wait()
        else:
            work.wait()
        qccl.set_compression(group, "minmax:bits=4")
        dist.barrier(other)
        if rank == 1:
            future, _ = add_callback(work, group, 1)
        future.wait()
        assert 0 < qccl.traffic().payload_bytes_sent - before < 100_000, "of 400,000 uncompressed"

    run_ranks(body)
