"""The communication log: DeepSpeed's configuration, tables and keys without its logger's defects, and more."""

import csv
import json
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import run_processes, run_ranks

import qccl

SUMMARY_KEYS = {
    "count", "total_latency_ms", "avg_latency_ms", "tput_avg_gbps", "busbw_avg_gbps", "msg_size_bytes", "msg_size_str",
}  # fmt: skip
STRAGGLER_KEYS = {
    "count", "total_comm_lat_ms", "total_straggler_ms", "avg_comm_lat_ms", "avg_straggler_ms", "msg_size_bytes",
    "msg_size_str",
}  # fmt: skip


def names() -> list[str]:
    return [record["name"] for record in qccl.comms_logger.records()]


# ---- defects of DeepSpeed's logger


def test_each_call_has_its_own_latency():
    def body(rank):
        tensor = torch.ones(1 << 20)
        dist.barrier()
        qccl.configure_log(enabled=True)
        began = time.monotonic_ns()
        for _ in range(8):
            dist.all_reduce(tensor)
        wall = time.monotonic_ns() - began
        records = qccl.comms_logger.records()
        assert [record["name"] for record in records] == ["all_reduce"] * 8
        for before, after in zip(records, records[1:], strict=False):
            assert before["ended_ns"] <= after["posted_ns"]
        assert all(began <= record["posted_ns"] <= record["ended_ns"] <= began + wall for record in records)
        count, latencies, _, _ = qccl.comms_logger.get_raw_data()["all_reduce"][4 << 20]
        assert count == 8 and latencies == [record["latency_ms"] for record in records]
        assert sum(latencies) <= wall / 1e6
        summary = qccl.log_summary(return_dict=True)["summary"]
        assert summary["all_reduce"][4 << 20]["total_latency_ms"] == pytest.approx(sum(latencies))

    run_ranks(body)


@pytest.mark.parametrize("config", [{"enabled": False}, {}, {"enabled": False, "verbose": True, "prof_all": True}])
def test_off_means_off(config):
    def body(rank):
        qccl.configure_log({"train_batch_size": 8, "comms_logger": config})
        dist.all_reduce(torch.ones(100))
        assert not qccl.comms_logger.enabled and not qccl.comms_logger.has_data()
        assert qccl.log_summary(return_dict=True)["summary"] == {}

    run_ranks(body)


def test_the_configuration_may_be_a_file_and_arguments_win_over_it(tmp_path):
    file = tmp_path / "deepspeed.json"
    file.write_text(json.dumps({"comms_logger": {"enabled": True, "prof_all": False, "prof_ops": ["barrier"]}}))

    def body(rank):
        qccl.configure_log(file)
        dist.all_reduce(torch.ones(100))
        dist.barrier()
        assert names() == ["barrier"] and qccl.comms_logger.prof_ops == ["barrier"]
        qccl.configure_log(str(file), prof_all=True)
        dist.all_reduce(torch.ones(100))
        assert names() == ["barrier", "all_reduce"]

    run_ranks(body)


def test_objects_and_monitored_barriers_do_not_end_the_program():
    def body(rank):
        qccl.configure_log(enabled=True, verbose=True)
        gathered = [None, None]
        dist.all_gather_object(gathered, {"rank": rank})
        qccl.monitored_barrier()
        assert gathered == [{"rank": 0}, {"rank": 1}]
        assert "all_gather" in names()
        return "still here"

    assert run_ranks(body) == ["still here"] * 2


def test_all_to_all_of_lists_and_broadcasts_of_objects_are_logged():
    def body(rank):
        qccl.configure_log(enabled=True)
        dist.all_to_all([torch.zeros(3), torch.zeros(3)], [torch.ones(3), torch.ones(3)])
        objects = [{"from": 0}] if rank == 0 else [None]
        dist.broadcast_object_list(objects, 0)
        assert objects == [{"from": 0}]
        assert names()[0] == "all_to_all" and set(names()[1:]) == {"broadcast"}

    run_ranks(body)


def test_arguments_may_be_given_by_position_or_by_name():
    def body(rank):
        qccl.configure_log(enabled=True)
        out, whole = torch.zeros(4), torch.ones(8)
        dist.reduce_scatter_tensor(out, input=whole)
        dist.reduce_scatter_tensor(output=out, input=whole)
        dist.all_reduce(tensor=whole)
        sizes = [(record["name"], record["bytes"]) for record in qccl.comms_logger.records()]
        assert sizes == [("reduce_scatter", 32), ("reduce_scatter", 32), ("all_reduce", 32)]

    run_ranks(body)


@pytest.mark.parametrize("name", ["all_gather", "all_gather_into_tensor"])
def test_listed_operations_are_found_by_their_names(name):
    def body(rank):
        qccl.configure_log({"comms_logger": {"enabled": True, "prof_all": False, "prof_ops": [name]}})
        dist.all_reduce(torch.ones(4))
        dist.all_gather_into_tensor(torch.zeros(8), torch.zeros(4))
        assert names() == ["all_gather"]
        qccl.comms_logger.start_profiling_op(["all_reduce"])
        dist.all_reduce(torch.ones(4))
        qccl.comms_logger.stop_profiling_op([name])
        dist.all_gather_into_tensor(torch.zeros(8), torch.zeros(4))
        assert names() == ["all_gather", "all_reduce"]
        qccl.comms_logger.start_profiling_comms()
        dist.broadcast(torch.zeros(4), 0)
        assert names()[-1] == "broadcast"

    run_ranks(body)


def test_an_asynchronous_operation_is_timed_to_its_end(tmp_path):
    """Rank 1 posts when rank 0 tells it to, long after rank 0's own post. Rank 0's wait would not show the delay."""

    def body(rank):
        store = dist.FileStore(str(tmp_path / "turns"), 2)
        qccl.configure_log(enabled=True)
        if rank == 1:
            store.wait(["posted"])
        work = dist.all_reduce(torch.ones(1 << 18), async_op=True)
        posted = time.monotonic_ns()
        if rank == 0:
            threading.Event().wait(0.05)  # the test measures this delay
            store.set("posted", "1")
        called = time.monotonic_ns()
        work.wait()
        (record,) = qccl.comms_logger.records()
        assert record["posted_ns"] <= posted and record["ended_ns"] <= time.monotonic_ns()
        if rank == 0:
            assert record["latency_ms"] >= 50 and record["ended_ns"] > called

    run_ranks(body)


def test_bandwidth_is_that_of_the_operations_own_group():
    def body(rank):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        qccl.configure_log(enabled=True)
        out, whole = torch.zeros(1000), torch.zeros(2000)
        pair = pairs[rank // 2]
        dist.all_reduce(out, group=pair)
        dist.all_gather_into_tensor(whole, out, group=pair)
        dist.reduce_scatter_tensor(out, whole, group=pair)
        sizes, buses = [4000, 8000, 8000], [1, 0.5, 0.5]
        for record, size, bus in zip(qccl.comms_logger.records(), sizes, buses, strict=True):
            assert record["group_size"] == 2
            assert record["algbw_gbps"] == pytest.approx(size * 8 / (record["latency_ms"] * 1e6))
            assert record["busbw_gbps"] == pytest.approx(record["algbw_gbps"] * bus)
        theirs = qccl.comms_logger.records(formulas="deepspeed")
        for record, size in zip(theirs, [2 * 4000, 4 * 4000, 4 * 8000], strict=True):
            assert record["algbw_gbps"] == pytest.approx(size * 8 / (record["latency_ms"] * 1e6))

    run_ranks(body, world=4)


# ---- DeepSpeed's tables and keys


def test_summary_has_deepspeeds_table_and_keys(capfd):
    def body(rank):
        qccl.configure_log(enabled=True)
        for _ in range(3):
            dist.all_reduce(torch.ones(1 << 20))
        dist.broadcast(torch.ones(2), 0)
        return qccl.log_summary(return_dict=True)

    results = run_ranks(body)
    printed = capfd.readouterr().out
    head = [
        "Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)", "tput_avg (Gbps)",
        "busbw_avg (Gbps)",
    ]  # fmt: skip
    lines = printed.splitlines()
    assert lines[0] == "".join(column.ljust(20) for column in head)
    assert lines[1] == "all_reduce" and lines[2].startswith(" " * 20 + "4.0 MB".ljust(20) + "3".ljust(20))
    assert lines[3] == "broadcast" and lines[4].startswith(" " * 20 + "8.0 B".ljust(20))
    assert printed.count("Comm. Op") == 2, "rank 0 alone prints, and the table of traffic once"
    for rank, result in enumerate(results):
        entry = result["summary"]["all_reduce"][4 << 20]
        assert entry.keys() >= SUMMARY_KEYS and entry["count"] == 3 and entry["msg_size_str"] == "4.0 MB"
        assert result["straggler_analysis"] is None
        assert result["metadata"].keys() == {"world_size", "rank", "timestamp"} and result["metadata"]["rank"] == rank
        assert result["summary"]["broadcast"][8]["count"] == 1


def test_the_delayed_rank_is_named(capfd, tmp_path):
    """The straggler posts each operation 50 ms after its peers have posted theirs, however slow the machine is."""
    late = 2

    def body(rank):
        store = dist.FileStore(str(tmp_path / "turns"), 3)
        qccl.configure_log(enabled=True)
        for turn in range(5):
            if rank == late:
                store.wait([f"{turn} 0", f"{turn} 1"])
                threading.Event().wait(0.05)  # the test looks for this delay
            work = dist.all_reduce(torch.ones(1000), async_op=True)
            store.set(f"{turn} {rank}", "posted")
            work.wait()
        return qccl.log_summary(show_straggler=True, return_dict=True)

    for rank, result in enumerate(run_ranks(body, world=3)):
        first, *others = result["stragglers"]
        assert first["rank"] == late and first["last_in"] == 5 and first["waited_for_ms"] >= 250
        assert all(other["waited_for_ms"] == 0 for other in others)
        entry = result["straggler_analysis"]["all_reduce"][4000]
        assert entry.keys() == STRAGGLER_KEYS and entry["count"] == 5
        assert entry["total_straggler_ms"] == 0 if rank == late else entry["total_straggler_ms"] >= 250
        assert result["summary"].keys() == {"all_reduce"}, "the comparison itself is not logged"
    printed = capfd.readouterr().out
    assert "Breakdown with straggler effect" in printed
    assert f"rank {late} came last in 5 of 5 operations" in printed


def test_stragglers_are_found_where_ranks_have_logged_different_operations():
    def body(rank):
        qccl.configure_log(enabled=True)
        dist.all_reduce(torch.ones(10))
        qccl.configure_log(enabled=rank == 0)
        dist.all_reduce(torch.ones(10))
        qccl.configure_log(enabled=True)
        dist.all_reduce(torch.ones(10))
        return qccl.log_summary(show_straggler=True, return_dict=True)

    for result in run_ranks(body):
        assert result["straggler_analysis"]["all_reduce"][40]["count"] == 2


def test_verbose_writes_deepspeeds_line_on_rank_0(capfd):
    def body(rank):
        qccl.configure_log(enabled=True, verbose=True)
        dist.all_reduce(torch.ones(1 << 20))

    run_ranks(body)
    lines = [line for line in capfd.readouterr().err.splitlines() if "comm op" in line]
    assert len(lines) == 1
    fields = [field.partition(": ") for field in lines[0].split(" | ")]
    assert [name for name, _, _ in fields] == [
        "comm op", "time (ms)", "msg size", "algbw (Gbps)", "busbw (Gbps)"]  # fmt: skip
    assert fields[0][2] == "all_reduce" and fields[2][2] == "4.0 MB"
    assert all(float(fields[place][2]) > 0 for place in (1, 3, 4))


def test_debug_names_the_function_that_called():
    def train_step():
        dist.all_reduce(torch.ones(4))

    def body(rank):
        qccl.configure_log(enabled=True, debug=True)
        train_step()
        return names()

    assert run_ranks(body) == [["all_reduce | [Caller Func: train_step]"]] * 2


def test_the_logger_has_deepspeeds_methods():
    def body(rank):
        logger = qccl.comms_logger
        assert not logger.has_data() and logger.get_operation_summary("all_reduce") is None
        qccl.configure_log(enabled=True)
        dist.all_reduce(torch.ones(4))
        dist.all_reduce(torch.ones(8))
        dist.broadcast(torch.ones(4), 0)
        assert logger.get_operation_names() == ["all_reduce", "broadcast"] and logger.get_total_operations() == 3
        assert logger.get_operation_summary("all_reduce").keys() == {16, 32}
        assert logger.get_operation_summary("all_reduce")[16].keys() >= SUMMARY_KEYS
        logger.reset_data()
        assert not logger.has_data()

    run_ranks(body)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"config": {"comms_loger": {}}}, "no section"),
        ({"config": {"comms_logger": {"enabeld": True}}}, "enabeld"),
        ({"prof_ops": ["all_reduc"]}, "all_reduc; there are"),
    ],
)
def test_what_there_is_not_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        qccl.configure_log(**settings)


def test_formulas_that_there_are_not_are_refused():
    with pytest.raises(ValueError, match="nccl-tests and deepspeed"):
        qccl.log_summary(formulas="gloo")


# ---- features that DeepSpeed's logger lacks


def test_bytes_on_the_wire_and_compression_ratio():
    def body(rank):
        qccl.configure_log(enabled=True)
        tensor = torch.rand(1 << 18)
        dist.all_reduce(tensor)
        before = qccl.traffic()
        qccl.all_reduce(tensor, compression="minmax:bits=4")
        sent = qccl.traffic().payload_bytes_sent - before.payload_bytes_sent
        plain, compressed = qccl.comms_logger.records()
        assert plain["compression"] == "none" and plain["compression_ratio"] == 1
        assert compressed["payload_bytes"] == sent and compressed["plain_bytes"] == plain["payload_bytes"]
        assert 7.5 < compressed["compression_ratio"] < 8
        entry = qccl.log_summary(return_dict=True)["summary"]["all_reduce"][1 << 20]
        assert entry["wire_bytes"] == pytest.approx((plain["wire_bytes"] + compressed["wire_bytes"]) / 2)
        assert entry["min_ms"] <= entry["p50_ms"] <= entry["p90_ms"] <= entry["p99_ms"] <= entry["max_ms"]

    run_ranks(body)


def test_logs_are_saved_as_traces_and_tables(tmp_path):
    def body(rank):
        qccl.configure_log(enabled=True)
        dist.all_reduce(torch.ones(100))
        dist.barrier()
        qccl.save_log(tmp_path / f"log{rank}.json")
        qccl.save_log(str(tmp_path / f"log{rank}.csv"))
        with pytest.raises(ValueError, match=".json or .csv"):
            qccl.save_log(tmp_path / "log.txt")
        return qccl.comms_logger.records()

    for rank, records in enumerate(run_ranks(body)):
        trace = json.loads((tmp_path / f"log{rank}.json").read_text())
        events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        with (tmp_path / f"log{rank}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [event["pid"] for event in events] == [rank] * 2
        assert [event["name"] for event in events] == [row["name"] for row in rows] == ["all_reduce", "barrier"]
        for record, event, row in zip(records, events, rows, strict=True):
            for key in ("posted_ns", "started_ns", "ended_ns", "bytes", "wire_bytes", "sequence"):
                assert event["args"][key] == record[key] and row[key] == str(record[key])


def test_the_environment_turns_it_on_and_each_rank_writes_its_file(tmp_path):
    def body(rank):
        dist.all_reduce(torch.ones(100))
        assert qccl.comms_logger.enabled

    run_ranks(body, environment={"QCCL_LOG_FILE": str(tmp_path / "log_")})
    for rank in range(2):
        trace = json.loads((tmp_path / f"log_{rank}.json").read_text())
        assert trace["qccl"]["ranks"][0]["rank"] == rank
        assert [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"] == ["all_reduce"]


def test_groups_that_come_after_one_another_are_not_mixed_up(tmp_path):
    def body(rank):
        qccl.configure_log(enabled=True)
        for job in range(2):
            store = dist.FileStore(str(tmp_path / f"store{job}"), 2)
            dist.init_process_group("qccl", store=store, rank=rank, world_size=2)
            dist.all_reduce(torch.ones(100))
            if job == 0:
                dist.destroy_process_group()
        result = qccl.log_summary(show_straggler=True, return_dict=True)
        dist.destroy_process_group()
        return result["straggler_analysis"]["all_reduce"][400]["count"]

    assert [outcome.value for outcome in run_processes(body, 2)] == [2, 2]


def test_what_a_rank_was_doing_when_another_died_is_in_its_file(tmp_path):
    def body(rank):
        store = dist.FileStore(str(tmp_path / "store"), 2)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=2)
        dist.all_reduce(torch.ones(100_000))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(dist.DistError):
            dist.all_reduce(torch.ones(100_000))
        dist.destroy_process_group()

    run_processes(body, 2, environment={"QCCL_LOG_FILE": str(tmp_path / "log_")})
    trace = json.loads((tmp_path / "log_0.json").read_text())
    well, badly = [event["args"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert well["error"] == "" and "rank 1 was lost" in badly["error"]
    assert badly["posted_ns"] < badly["ended_ns"]


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path):
    def body(rank):
        with pytest.raises(ValueError, match="make its folder"):
            qccl.configure_log(enabled=True, file=tmp_path / "no" / "log_")
        assert not qccl.comms_logger.enabled
        qccl.configure_log(enabled=True, file=tmp_path / "log_")
        dist.all_reduce(torch.ones(100))

    run_ranks(body)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log_0.json", "log_1.json"]


def test_it_is_configured_before_the_group_and_read_after_it(tmp_path, capfd):
    def body(rank):
        qccl.configure_log(enabled=True)
        store = dist.FileStore(str(tmp_path / "store"), 2)
        dist.init_process_group("qccl", store=store, rank=rank, world_size=2)
        dist.all_reduce(torch.ones(100))
        dist.destroy_process_group()
        result = qccl.log_summary(return_dict=True)
        return result["summary"]["all_reduce"][400]["count"], result["metadata"]["rank"]

    assert [outcome.value for outcome in run_processes(body, 2)] == [(1, 0), (1, 1)]
    assert capfd.readouterr().out.count("Total Latency(ms)") == 1, "rank 0 alone prints"
