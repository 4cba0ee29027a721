"""qccl.scalars(): this process's counters as flat numbers."""

import torch
import torch.distributed as dist
from ranks import run_ranks

import qccl


def test_without_a_group_there_are_none():
    assert qccl.scalars() == {}


def test_what_a_step_did_is_the_difference():
    def body(rank):
        before = qccl.scalars()
        assert before and all(type(value) is float for value in before.values())
        qccl.set_compression(dist.group.WORLD, "minmax:bits=4")
        for _ in range(4):
            dist.all_reduce(torch.ones(1 << 18))
        dist.barrier()
        after = qccl.scalars()
        assert after["qccl/all_reduce/calls"] == 4 and after["qccl/barrier/calls"] >= 1
        assert after["qccl/all_reduce/input_bytes"] == 4 << 20
        assert after["qccl/calls"] - before["qccl/calls"] == 5
        assert 6 < after["qccl/all_reduce/compression_ratio"] < 8.1
        saved = after["qccl/saved_bytes"] - before["qccl/saved_bytes"]
        assert 5 * (after["qccl/sent_bytes"] - before["qccl/sent_bytes"]) < saved < 4 << 20
        assert 0 < after["qccl/busy_share"] <= 1 and after["qccl/all_reduce/seconds"] > 0
        assert after["qccl/oldest_call_seconds"] == 0 and after["qccl/failures"] == 0

    run_ranks(body)


def test_messages_count_too_and_the_prefix_is_yours():
    def body(rank):
        if rank == 0:
            dist.send(torch.ones(1000), 1)
        elif rank == 1:
            dist.recv(torch.empty(1000), 0)
        dist.barrier()
        values = qccl.scalars(prefix="comm.")
        assert values.get("comm.send/calls", 0) == (rank == 0) and values.get("comm.recv/calls", 0) == (rank == 1)
        assert all(name.startswith("comm.") for name in values)

    run_ranks(body)
