"""torchft's own tests, of its wheel, with ProcessGroupQCCL in place of ProcessGroupGloo.

Every test of a module that makes such groups is here. Those that make none are skipped with a reason of EXCLUDED, those
that need GPUs or torchcomms with torchft's own reason. docs/clients/torchft.md says where they differ from torchft's.
"""

import functools
import importlib
import re
import threading
import unittest
from datetime import timedelta
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
import torchft
import torchft.coordination
import torchft.process_group
from parameterized import parameterized

import qccl.torchft

GLOO = torchft.process_group.ProcessGroupGloo
torchft.process_group.ProcessGroupGloo = torchft.ProcessGroupGloo = qccl.torchft.ProcessGroupQCCL

from torchft import (  # noqa: E402
    diloco_regression_test,
    local_sgd_integ_test,
    manager_integ_test,
    process_group_test,
)
from torchft._test import diloco_trainer  # noqa: E402

MODULES = [
    "checkpointing.pg_transport_test",
    "ddp_test",
    "fsdp_test",
    "lighthouse_test",
    "local_sgd_integ_test",
    "manager_integ_test",
    "parameter_server_test",
    "process_group_test",
]

# Parts of the names of tests that make no ProcessGroupGloo, and what they do instead.
EXCLUDED = {
    "Nccl|nccl": "makes a group of nccl",
    "Baby|baby_gloo|baby_process_group": "makes torch's gloo in a process of its own",
    "test_dummy|CreateStoreClient|group_wrapper|managed_process_group": "makes no group",
    "heartbeat|lighthouse_client": "asks the lighthouse only",
}

# The tests expect errors in gloo's words. QCCL's for the same, by a part of gloo's:
WORDS = {
    "Connection closed by peer": r"rank 2 (can't take part, it )?left the job",
    "Socket Timeout": r"rank 1 did not appear within",
}


def import_tests(module):
    """Makes the module's tests tests of this one."""
    for name, cls in vars(importlib.import_module(f"torchft.{module}")).items():
        if isinstance(cls, type) and issubclass(cls, unittest.TestCase) and cls.__module__ == f"torchft.{module}":
            exclude(cls)
            globals()[name] = cls


def exclude(cls):
    for test in unittest.defaultTestLoader.getTestCaseNames(cls):
        reasons = [reason for part, reason in EXCLUDED.items() if re.search(part, f"{cls.__name__}.{test}")]
        if reasons:
            pytest.mark.skip(reason=reasons[0])(getattr(cls, test))


for module in MODULES:
    import_tests(module)


class SeededModel(manager_integ_test.MyModel):
    """Its weights come from a generator of its own. The tests seed the process's, from which replicas that train
    already, threads of this process, draw at the same time."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(42)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-0.5, 0.5, generator=generator)


manager_integ_test.MyModel = SeededModel
# A quorum is made without a replica that is later than this; those that are in it then finish and leave that one alone.
local_sgd_integ_test.LighthouseServer = functools.partial(torchft.coordination.LighthouseServer, join_timeout_ms=5000)


class LeavesLast(qccl.torchft.ProcessGroupQCCL):
    """The rank that leaves in tests of resiliency does so when the operation before it has ended on all ranks. A rank
    that sees it leave ends all operations of the group, on all ranks, where gloo ends its own."""

    ended = threading.Barrier(3)

    def set_timeout(self, timeout):  # to a second: by the ranks that stay, before the call that fails
        if timeout.seconds == 1:
            self.ended.wait(30)
        super().set_timeout(timeout)

    def shutdown(self):
        if self._pg is not None and self._timeout.seconds > 1:
            self.ended.wait(30)
        super().shutdown()


process_group_test.NormalGlooMultiPgTest._create_pg = lambda backend: LeavesLast(timedelta(seconds=1))


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """QCCL's words among those that a test expects; no default group is left behind."""
    expect = unittest.TestCase.assertRaisesRegex

    def expect_also_ours(test, error, words, *arguments, **named):
        return expect(test, error, "|".join([words, *(ours for part, ours in WORDS.items() if part in words)]))

    monkeypatch.setattr(unittest.TestCase, "assertRaisesRegex", expect_also_ours)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


class WhatGlooLacksTest(process_group_test.MultiPgBaseTest):
    """torchft's checks of collectives that its tests leave out because gloo has none. Its check of reduce_scatter does
    nothing on CPUs."""

    WORLD_SIZE = 3

    @parameterized.expand(["alltoall_base", "reduce_scatter_tensor_coalesced"])
    def test_collective(self, collective):
        self._run_parallel(collective)


class DiLoCoTrajectoriesTest(diloco_regression_test.DiLoCoMockedUpdateTest):
    """Every test runs over torchft's own group first, and its trajectories replace the stored ones, which the wheel
    lacks. Those over ours are the same to the last bit."""

    def setUp(self):
        self.over_gloo = None
        with patch.object(diloco_trainer, "ProcessGroupGloo", GLOO):
            getattr(self, self._testMethodName)()

    def _check_against_fixture(self, results):
        trajectories = [replica[0]["history"] for replica in results]
        if self.over_gloo is None:
            self.over_gloo = trajectories
            return False
        self.assertEqual(trajectories, self.over_gloo)
        return True


def test_the_tests_make_our_groups():
    modules = [importlib.import_module(f"torchft.{module}") for module in MODULES]
    groups = {module.ProcessGroupGloo for module in [torchft, diloco_trainer, *modules]}
    assert groups == {qccl.torchft.ProcessGroupQCCL}


def test_a_group_of_torchft_leaves_the_default_groups_options():
    dist.init_process_group("qccl", rank=0, world_size=1, store=dist.HashStore(), pg_options=qccl.Options("int:bits=8"))
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    group = qccl.torchft.ProcessGroupQCCL()
    group.configure(f"localhost:{store.port}/group", "0", 0, 1)
    assert qccl._backend.default_options().compression == qccl.Options("int:bits=8").compression
    group.shutdown()
