"""Compressed sends and receives: qccl.send(), qccl.recv(), the group's message_compression and the environment's."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_processes, run_ranks

import qccl

TRANSPORTS = ("shm", "tcp")
COUNT = 300_001  # many slices, the last one short
CODECS = ("int:bits=8", "minmax:bits=4", "grid:relative=0.5,entropy=rans", "lossless", "cast:type=bf16")


def sent_bytes(call):
    before = qccl.traffic().payload_bytes_sent
    call()
    return qccl.traffic().payload_bytes_sent - before


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("count", [0, 1, COUNT])
def test_send_and_recv_take_a_codec(count, transport):
    def body(rank):
        for compression in CODECS:
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                sent = torch.linspace(-1, 1, count).to(dtype)
                if rank == 0:
                    assert qccl.send(sent, 1, compression=compression) is None
                else:
                    received = torch.full((count,), 9.0, dtype=dtype)
                    assert qccl.recv(received, 0, compression=compression) == 0
                    torch.testing.assert_close(received, sent, atol=0.35, rtol=0)
                    assert compression != "lossless" or received.equal(sent)

    run_ranks(body, environment={"QCCL_TRANSPORT": transport})


def test_calls_without_blocking_and_of_any_source_and_in_batches():
    def body(rank):
        group = dist.new_group([0, 2])
        if rank == 1:
            return
        other = 2 - rank
        mine, theirs = torch.full((COUNT,), float(rank + 1)), torch.zeros(COUNT)
        works = [
            qccl.recv(theirs, other, group, 5, compression="int:bits=8", async_op=True),
            qccl.send(mine, other, group, 5, compression="int:bits=8", async_op=True),
        ]
        for work in works:
            work.wait()
        torch.testing.assert_close(theirs, torch.full((COUNT,), float(other + 1)), atol=0.02, rtol=0)
        if rank == 0:
            qccl.send(mine, 2, group, compression="cast")
        else:
            assert qccl.recv(theirs, group=group, compression="cast") == 0, "the sender's rank in the world"

    run_ranks(body, 3)


def test_error_feedback_makes_up_for_what_was_lost():
    def body(rank):
        sent = torch.sin(torch.arange(1000.0))
        feedback = qccl.ErrorFeedback(1000)
        total = torch.zeros(1000)
        for _ in range(32):
            received = torch.zeros(1000)
            if rank == 0:
                qccl.send(sent, 1, compression="minmax:bits=2", error_feedback=feedback)
            else:
                qccl.recv(received, 0, compression="minmax:bits=2")
                total += received
        if rank == 0:
            assert feedback.counter == 32
            assert feedback.residual.abs().max() > 0.01
        else:
            assert (received - sent).abs().max() > 0.1, "one message alone"
            torch.testing.assert_close(total / 32, sent, atol=0.05, rtol=0)

    run_ranks(body)


def test_wrong_calls_are_refused():
    def body(rank):
        other, floats, integers = 1 - rank, torch.zeros(10), torch.zeros(10, dtype=torch.int64)
        with pytest.raises(NotImplementedError, match="int64 can't be compressed"):
            qccl.send(integers, other, compression="int:bits=8")
        with pytest.raises(NotImplementedError, match="name the message's"):
            qccl.recv(floats, other, compression="auto")
        with pytest.raises(ValueError, match="allowed: none"):
            qccl.send(floats, other, compression="zip")
        with pytest.raises(ValueError, match="error feedback for 11 elements, but the input has 10"):
            qccl.send(floats, other, compression="cast", error_feedback=qccl.ErrorFeedback(11))
        dist.barrier()

    run_ranks(body)


def test_compressions_that_differ_fail_on_both_ranks_and_name_both_calls():
    def body(rank):
        tensor = torch.zeros(COUNT)
        with pytest.raises(dist.DistBackendError) as caught:
            if rank == 0:
                qccl.send(tensor, 1, compression="int:bits=8")
            else:
                dist.recv(tensor, 0)
            dist.barrier()
        assert "to=1, int:bits=8" in str(caught.value)
        assert "recv(count=300001, float32, from=0)" in str(caught.value)

    run_ranks(body)


def test_a_groups_message_compression_is_for_large_floats_and_may_be_overridden():
    def body(rank):
        def exchange(tensor, **options):
            other, received = 1 - rank, torch.zeros_like(tensor)
            works = [
                qccl.recv(received, other, async_op=True, **options),
                qccl.send(tensor, other, async_op=True, **options),
            ]
            for work in works:
                work.wait()
            return received

        large, small = torch.rand(COUNT), torch.rand(1000)
        whole = torch.arange(COUNT)
        assert sent_bytes(lambda: exchange(large)) < COUNT * 1.1
        assert sent_bytes(lambda: exchange(large, compression="none")) == COUNT * 4
        for exact in (small, whole):
            expected = [torch.zeros_like(exact) for _ in range(2)]
            dist.all_gather(expected, exact)
            assert exchange(exact).equal(expected[1 - rank])

        batch = [torch.zeros(COUNT), torch.zeros(10)]
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, tensor, 1 - rank) for tensor in batch]
            + [dist.P2POp(dist.isend, torch.full_like(tensor, 0.3), 1 - rank) for tensor in batch]
        )
        for work in works:
            work.wait()
        torch.testing.assert_close(batch[0], torch.full((COUNT,), 0.3), atol=0.01, rtol=0)
        assert batch[1].equal(torch.full((10,), 0.3)), "small tensors are sent as they are"

    run_ranks(body, pg_options=qccl.Options(message_compression="int:bits=8"))


def exchanged_bytes(group, tensor):
    """What this rank sends while both exchange the tensor."""
    other, received = 1 - group.rank(), torch.zeros_like(tensor)

    def exchange():
        for work in [group.recv([received], other, 0), group.send([tensor], other, 0)]:
            work.wait()

    return sent_bytes(exchange)


def test_the_environment_compresses_messages_where_neither_group_nor_call_says_how():
    def body(rank):
        large = torch.rand(COUNT)
        sums = qccl.Options(compression="cast")
        default = dist.group.WORLD
        groups = {
            "default": default,
            "of sums": dist.new_group(pg_options=sums),
            "part": default.split_group([0, 1], opts=sums, group_name="part"),
            "shrunk": qccl.shrink(dist.new_group()),
        }
        for name, group in groups.items():
            assert COUNT < exchanged_bytes(group, large) < COUNT * 1.1, name
            assert exchanged_bytes(group, torch.rand(1000)) == 4000, f"{name}: small tensors are sent as they are"
            assert exchanged_bytes(group, torch.arange(COUNT)) == COUNT * 8, f"{name}: so are integers"
        exact = dist.new_group(pg_options=qccl.Options(message_compression="none"))
        assert exchanged_bytes(exact, large) == COUNT * 4
        half = dist.new_group(pg_options=qccl.Options(message_compression="cast"))
        assert exchanged_bytes(half, large) == COUNT * 2
        if rank == 0:
            assert sent_bytes(lambda: qccl.send(large, 1, compression="none")) == COUNT * 4
        else:
            qccl.recv(large, 0, compression="none")
        assert COUNT < exchanged_bytes(qccl.shrink(), large) < COUNT * 1.1, "a job that goes on"

    run_ranks(body, environment={"QCCL_MESSAGE_COMPRESSION": "int:bits=8"})


def test_an_unknown_compression_in_the_environment_is_refused_at_the_start():
    def body(rank):
        store = dist.HashStore()
        with pytest.raises(ValueError, match="QCCL_MESSAGE_COMPRESSION: .*zip.* allowed: none"):
            dist.init_process_group("qccl", store=store, rank=0, world_size=1)

    (outcome,) = run_processes(body, 1, environment={"QCCL_MESSAGE_COMPRESSION": "zip"})
    assert outcome.finished and not outcome.error, outcome.trace


def test_a_groups_compression_of_sums_leaves_messages_alone():
    def body(rank):
        tensor = torch.rand(COUNT, generator=torch.Generator().manual_seed(1))
        if rank == 0:
            dist.send(tensor, 1)
        else:
            received = torch.zeros(COUNT)
            dist.recv(received, 0)
            assert received.equal(tensor)

    run_ranks(body, pg_options=qccl.Options(compression="minmax:bits=2"))
