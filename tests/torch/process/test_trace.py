"""The record of a rank's last operations, and its dump after a failure."""

import os
import pickle
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

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
        by_name = {entry["profiling_name"].split(" ")[0]: entry for entry in shown["entries"]}
        reduce, gather = by_name["gloo:all_reduce"], by_name["gloo:_all_gather_base"]
        assert reduce["input_sizes"] == [[2, 3]] and reduce["input_dtypes"] == ["Float"]
        assert reduce["state"] == "completed" and reduce["collective_seq_id"] == 1 and not reduce["is_p2p"]
        assert gather["output_sizes"] == [[8]] and gather["pg_id"] != reduce["pg_id"]
        assert gather["process_group"][0] == pair.group_name and pair.group_name in shown["pg_config"]
        message = by_name["gloo:recv" if rank else "gloo:send"]
        assert message["is_p2p"] and message["peer"] == 1 - rank and message["input_dtypes"] == ["Long"]
        if rank == 0:
            assert by_name["gloo:recv"]["state"] == "started"
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


def dump_of(folder, rank):
    return pickle.loads((folder / f"trace_{rank}").read_bytes())


def analysis_of(folder, *flags):
    """What torch's own tool says of the dumps."""
    tool = Path(sys.executable).with_name("torchfrtrace")
    ran = subprocess.run([tool, folder, "--prefix", "trace_", *flags], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_the_first_failure_is_written_to_a_file(tmp_path):
    def body(rank):
        dist.all_reduce(torch.ones(3))
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(100 + rank))
        written = dump_of(tmp_path, rank)
        assert written["rank"] == rank
        assert [entry["state"] for entry in written["entries"]] == ["completed", "failed"]
        assert "100" in written["entries"][1]["error"] and "101" in written["entries"][1]["error"]
        shown = qccl.trace()
        assert written["entries"] == shown["entries"] and list(written) == list(shown)

    run_ranks(body, environment={"QCCL_TRACE_DUMP": str(tmp_path / "trace_")})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace_0", "trace_1"]


def test_a_killed_rank_leaves_a_trace_on_the_others(tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()

    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 2)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=2)
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        work = dist.all_reduce(torch.ones(100_000), async_op=True)
        with pytest.raises(dist.DistError, match="rank 1"):
            work.wait()
        return dump_of(traces, 0)["entries"][-1]

    entry = run_processes(body, 2, environment={"QCCL_TRACE_DUMP": str(traces / "trace_")})[0].value
    assert entry["profiling_name"] == "gloo:all_reduce" and entry["state"] == "failed"
    assert "rank 1 was lost" in entry["error"] and "all_reduce" in entry["error"]
    assert entry["collective_seq_id"] == 2
    assert "Not all ranks joining" not in analysis_of(traces, "--allow-incomplete-ranks")


def test_nccls_name_for_the_dump_counts_in_its_place(tmp_path):
    def body(rank):
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(100 + rank))
        assert dump_of(tmp_path / "new", rank)["entries"][0]["state"] == "failed"

    variables = {"QCCL_REPLACE": "nccl", "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "new" / "trace_")}
    run_ranks(body, environment=variables)


def wait_for(path):
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.01)


def talk(rank, world):
    """Calls of every kind, which the tool has to match before it finds what is wrong."""
    pair = dist.new_group([0, 1])
    dist.barrier()
    dist.all_reduce(torch.ones(2, 3))
    dist.broadcast(torch.ones(4), 1)
    dist.all_gather([torch.zeros(2) for _ in range(world)], torch.zeros(2))
    dist.all_gather_into_tensor(torch.zeros(2 * world), torch.zeros(2))
    dist.reduce_scatter_tensor(torch.zeros(2), torch.zeros(2 * world))
    dist.all_to_all_single(torch.zeros(world), torch.zeros(world))
    dist.reduce(torch.zeros(2), 0)
    dist.gather(torch.zeros(2), [torch.zeros(2) for _ in range(world)] if rank == 0 else None)
    dist.scatter(torch.zeros(2), [torch.zeros(2) for _ in range(world)] if rank == 0 else None)
    dist.all_reduce(torch.sparse_coo_tensor([[rank]], [1.0], [world]))
    with dist._coalescing_manager(device=torch.device("cpu")):
        for _ in range(2):
            dist.all_reduce(torch.ones(3))
    if rank < 2:
        dist.all_reduce(torch.ones(5), group=pair)
        for _ in range(2):
            if rank == 0:
                dist.send(torch.zeros(5), 1)
            else:
                dist.recv(torch.zeros(5), 0)
        messages = [dist.P2POp(dist.isend, torch.zeros(1), 1 - rank), dist.P2POp(dist.irecv, torch.zeros(1), 1 - rank)]
        for work in dist.batch_isend_irecv(messages):
            work.wait()
    elif rank == 2:
        dist.recv(torch.zeros(1))
    if rank == 0:
        dist.send(torch.zeros(1), 2)
    dist.barrier()


def test_torchs_tool_names_the_rank_that_did_not_come(tmp_path):
    def body(rank):
        talk(rank, 3)
        if rank == 1:
            wait_for(tmp_path / "trace_1")  # without a call
            return
        with pytest.raises(dist.DistNetworkError, match="rank 1"):
            dist.all_reduce(torch.ones(7))

    environment = {"QCCL_TRACE_DUMP": str(tmp_path / "trace_")}
    run_ranks(body, 3, environment=environment, timeout=timedelta(seconds=3))
    said = analysis_of(tmp_path)
    last = dump_of(tmp_path, 0)["entries"][-1]["collective_seq_id"]
    assert f"Not all ranks joining collective, sequence number: {last}\n" in said
    assert said.count("Not all ranks joining") == 1 and "missing ranks: {1}" in said
    assert "has errors" not in said


def test_torchs_tool_names_the_rank_whose_call_differs(tmp_path):
    def body(rank):
        talk(rank, 3)
        with pytest.raises(dist.DistBackendError, match="differs"):
            dist.all_reduce(torch.ones(8 if rank == 1 else 7))

    run_ranks(body, 3, environment={"QCCL_TRACE_DUMP": str(tmp_path / "trace_")})
    said = analysis_of(tmp_path)
    assert said.count("has errors") == 1 and "Not all ranks joining" not in said
    assert "Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH" in said


def test_torchs_tool_finds_nothing_wrong_where_nothing_is(tmp_path):
    def body(rank):
        talk(rank, 3)
        (tmp_path / f"done_{rank}").touch()
        if rank == 0:
            for each in range(3):
                wait_for(tmp_path / f"done_{each}")
            dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).abort()
        wait_for(tmp_path / f"trace_{rank}")

    run_ranks(body, 3, environment={"QCCL_TRACE_DUMP": str(tmp_path / "trace_")})
    said = analysis_of(tmp_path)
    assert "has errors" not in said and "Not all ranks" not in said and "MISMATCH" not in said
