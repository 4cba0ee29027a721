"""The record of a rank's last operations, and its dump after a failure."""

import json
import os
import re
import signal
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import run_processes, run_ranks

import qccl


def test_operations_are_recorded_with_group_number_shapes_and_state():
    def body(rank):
        pair = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(2, 3))
        dist.all_gather_into_tensor(torch.zeros(8), torch.zeros(4), group=pair)
        if rank == 0:
            dist.send(torch.zeros(5, dtype=torch.int64), 1)
            pending = dist.irecv(torch.zeros(1), 1)
        else:
            dist.recv(torch.zeros(5, dtype=torch.int64), 0)
            pending = None
        shown = qccl.trace()
        names = {key: value["name"] for key, value in shown["pg_config"].items()}
        by_name = {entry["profiling_name"]: entry for entry in shown["entries"]}
        reduce, gather = by_name["qccl:all_reduce"], by_name["qccl:_all_gather_base"]
        assert reduce["input_sizes"] == [[2, 3]] and reduce["input_dtypes"] == ["Float"]
        assert reduce["state"] == "completed" and reduce["collective_seq_id"] == 1 and not reduce["is_p2p"]
        assert gather["output_sizes"] == [[8]] and gather["pg_id"] != reduce["pg_id"]
        assert names[str(gather["pg_id"])] == pair.group_name
        message = by_name["qccl:recv" if rank else "qccl:send"]
        assert message["is_p2p"] and message["peer"] == 1 - rank and message["input_dtypes"] == ["Long"]
        if rank == 0:
            assert by_name["qccl:recv"]["state"] == "started"
        dist.barrier()
        if rank == 1:
            dist.send(torch.zeros(1), 0)
        if pending:
            pending.wait()

    run_ranks(body)


def test_the_numbers_in_errors_are_those_of_the_library_in_the_trace():
    def body(rank):
        dist.all_reduce(torch.ones(3))
        before = qccl.trace()["entries"][-1]
        qccl.empty(4)  # uses the library's numbers, as each coalesced call does
        with dist._coalescing_manager(device=torch.device("cpu")):
            for _ in range(3):
                dist.all_gather_into_tensor(torch.ones(6), torch.ones(3))
        if rank == 0:
            dist.send(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1), 0)
        with pytest.raises(dist.DistBackendError) as caught:
            dist.all_reduce(torch.ones(3 + rank))
        number = int(re.search(r"operation #(\d+) differs", str(caught.value))[1])
        entries = qccl.trace()["entries"]
        failed = entries[-1]
        assert failed["state"] == "failed" and failed["qccl_seq_id"] == number > failed["collective_seq_id"]
        coalesced = entries[1]
        assert coalesced["qccl_operations"] == 3 and coalesced["qccl_seq_id"] + 3 == number
        assert coalesced["qccl_seq_id"] > before["qccl_seq_id"] + 1
        assert coalesced["collective_seq_id"] == before["collective_seq_id"] + 1
        message = entries[2]
        assert message["is_p2p"] and message["qccl_seq_id"] == message["p2p_seq_id"] == 1

    run_ranks(body)


def test_an_operation_in_flight_has_its_number_already():
    def body(rank):
        if rank == 0:
            work = dist.all_reduce(torch.ones(10), async_op=True)
            with pytest.raises(dist.DistNetworkError, match="goes on") as caught:
                work.wait(timedelta(milliseconds=1))
            entry = qccl.trace()["entries"][-1]
            assert entry["state"] == "started"
            assert f"all_reduce(count=10, float32, sum) #{entry['qccl_seq_id']}: " in str(caught.value)
            dist.send(torch.ones(1), 1)
            work.wait()
        else:
            dist.recv(torch.ones(1), 0)
            dist.all_reduce(torch.ones(10))

    run_ranks(body)


def test_the_first_failure_is_written_to_a_file(tmp_path):
    def body(rank):
        dist.all_reduce(torch.ones(3))
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(100 + rank))
        written = json.loads((tmp_path / f"trace_{rank}.json").read_text())
        assert written["rank"] == rank
        assert [entry["state"] for entry in written["entries"]] == ["completed", "failed"]
        assert "100" in written["entries"][1]["error"] and "101" in written["entries"][1]["error"]

    run_ranks(body, environment={"QCCL_TRACE_DUMP": str(tmp_path / "trace_")})


def test_a_killed_rank_leaves_a_trace_on_the_others(tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 2)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=2)
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        work = dist.all_reduce(torch.ones(100_000), async_op=True)
        with pytest.raises(dist.DistError, match="rank 1"):
            work.wait()
        return json.loads((tmp_path / "trace_0.json").read_text())["entries"][-1]

    entry = run_processes(body, 2, environment={"QCCL_TRACE_DUMP": str(tmp_path / "trace_")})[0].value
    assert entry["profiling_name"] == "qccl:all_reduce" and entry["state"] == "failed"
    assert "rank 1 was lost" in entry["error"] and "all_reduce" in entry["error"]
    assert entry["collective_seq_id"] == 2
