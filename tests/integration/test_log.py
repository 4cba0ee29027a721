"""What the pages call DeepSpeed's, beside DeepSpeed's own: tables, averages, names, arguments."""

import contextlib
import inspect
import io

import deepspeed
import pytest
import torch
import torch.distributed as dist
from deepspeed.utils.comms_logging import CommsLogger
from ranks import run_ranks

import qccl

# DeepSpeed's engine calls these; in QCCL the library logs, qccl.configure_log() configures, qccl.log_summary() prints.
ENGINES = {"append", "comms_dict", "configure", "log_all"}


def test_init_distributed_takes_deepspeeds_arguments():
    theirs, ours = (inspect.signature(call).parameters for call in (deepspeed.init_distributed, qccl.init_distributed))
    assert list(ours) == list(theirs)
    differ = [name for name in ours if ours[name].default != theirs[name].default]
    assert differ == ["timeout"], "QCCL's own limits apply where the program gives none"


def test_the_logger_has_deepspeeds_names():
    theirs = {name for name in dir(CommsLogger()) if not name.startswith("_")}
    assert theirs - set(dir(qccl.comms_logger)) == ENGINES


def test_the_tables_are_deepspeeds():
    def body(rank):
        for name in ("get_world_size", "get_rank", "is_initialized"):  # what its tables ask of its own groups
            setattr(deepspeed.comm, name, getattr(dist, name))
        qccl.configure_log(enabled=True)
        for count in [1000] * 21 + [70_000] * 3:
            dist.all_reduce(torch.ones(count))
            dist.broadcast(torch.ones(count), 0)
            dist.all_gather_into_tensor(torch.ones(2 * count), torch.ones(count))
            dist.reduce_scatter_tensor(torch.ones(count // 2), torch.ones(count))
            dist.all_to_all_single(torch.ones(count), torch.ones(count))
        deepspeeds = CommsLogger()
        for record in qccl.comms_logger.records(formulas="deepspeed"):
            deepspeeds.append(record["name"], record["name"], record["latency_ms"], record["bytes"])
        printed = [io.StringIO(), io.StringIO()]
        with contextlib.redirect_stdout(printed[0]):
            theirs = deepspeeds.log_all(return_dict=True)
        with contextlib.redirect_stdout(printed[1]):
            ours = qccl.log_summary(return_dict=True, formulas="deepspeed", show_traffic=False)
        assert ours["metadata"].keys() == theirs["metadata"].keys()
        assert ours["summary"].keys() == theirs["summary"].keys()
        for name, sizes in theirs["summary"].items():
            assert ours["summary"][name].keys() == sizes.keys()
            for size, row in sizes.items():
                own = ours["summary"][name][size]
                assert {key: own[key] for key in row} == {
                    key: value if isinstance(value, str) else pytest.approx(value) for key, value in row.items()
                }
        return [each.getvalue() for each in printed]

    (theirs, ours), _ = run_ranks(body)
    # DeepSpeed prints the operations in the order of their first calls.
    assert sorted(ours.splitlines()[: len(theirs.splitlines())]) == sorted(theirs.splitlines())
