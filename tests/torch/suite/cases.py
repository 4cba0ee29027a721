"""PyTorch's own tests of a c10d backend, applied to qccl.

They come with torch (torch/testing/_internal/distributed/distributed_test.py), written for backends that torch knows by
name: most are guarded by comparing the module's constant BACKEND with "gloo", or, those of all_to_all on the CPU, with
"mpi". Here BACKEND is a string "qccl" that also equals those two, so that qccl must pass the tests of both.

Code that names backends or assumes a fast machine is also changed, but no assertion of a test:

- qccl is added to torch's lists of backends with DDP, subgroups and profiler events;
- dist.monitored_barrier() loses its check of the backend's name;
- DDP's record of itself has the backend's name instead of "custom", which torch writes for unknown backends;
- the limits of a test, of the barrier between tests' ranks, and of groups that have a second to join and to fail, are
  longer.

run.py imports this module and, under the start method spawn, so does every rank, both with the settings exported
(settings.py).
"""

import collections
import importlib
import importlib.util
import logging
import multiprocessing
import os
import signal
import sys
import types
import unittest
import unittest.mock
from datetime import timedelta

from settings import NAME, Settings

SETTINGS = Settings.exported()
ALSO = ("nccl",) if SETTINGS.stand_in else ("gloo", "mpi")
SUITE = "torch.testing._internal.distributed.distributed_test"
COMMON = "torch.testing._internal.common_distributed"
RANK_BARRIER_SECONDS = 60
GROUP_TIMEOUT_SECONDS = 60
SHORT_GROUP_TIMEOUT_SECONDS = 5  # in place of 1
PROBE_SECONDS = 5


class BackendName(str):
    """A string equal to qccl and to each of ALSO, and found in sets that have one of them."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and (str(other) == NAME or str(other) in ALSO)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(ALSO[0])

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return str, (str(self),)


def load_suite() -> types.ModuleType:
    """The module reads the backend's name from its environment, once, when it is imported."""
    named = collections.ChainMap({"BACKEND": BackendName(NAME)}, os.environ)
    with unittest.mock.patch.object(os, "environ", named):
        module = stand_in.load(SUITE) if SETTINGS.stand_in else importlib.import_module(SUITE)
    assert isinstance(module.BACKEND, BackendName), f"{SUITE} has its BACKEND from elsewhere: this torch needs a look"
    return module


def provide_expecttest() -> None:
    """torch's test utilities import it for a base class that none of these tests uses."""
    if importlib.util.find_spec("expecttest") is None:
        stub = types.ModuleType("expecttest")
        stub.TestCase = type("TestCase", (unittest.TestCase,), {})
        stub.ACCEPT = False
        sys.modules["expecttest"] = stub


def load_common() -> types.ModuleType:
    """Loads the code that tests of all backends share, without torch's compiler, on which only an unused class is
    based. Every spawned rank of every test imports this again, and the compiler would take a second of processor
    time."""
    base = "torch._dynamo.test_case"
    sys.modules[base] = stub = types.ModuleType(base)
    stub.TestCase = unittest.TestCase
    asked_by_2_11 = types.SimpleNamespace(inline_inbuilt_nn_modules=True)  # for a decorator; True is torch's own
    torch._dynamo = types.SimpleNamespace(test_case=stub, config=asked_by_2_11)
    try:
        return importlib.import_module(COMMON)
    finally:
        del torch._dynamo, sys.modules[base]  # torch imports them on demand


def enter_qccl() -> None:
    """Adds qccl where torch lists backends by name."""
    logging.getLogger(common.__name__).setLevel(logging.ERROR)  # it logs every process it starts
    for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
        common.DistTestCases.backend_feature[feature].add(NAME)
    common.TIMEOUT_DEFAULT = SETTINGS.seconds_per_test
    for test, seconds in common.TIMEOUT_OVERRIDE.items():
        common.TIMEOUT_OVERRIDE[test] = max(seconds, SETTINGS.seconds_per_test)


def widen(suite: types.ModuleType) -> None:
    suite.PROFILING_SUPPORTED_BACKENDS.append(NAME)
    suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(NAME)
    suite.default_pg_timeout = GROUP_TIMEOUT_SECONDS
    suite.Barrier.sync.__func__.__defaults__ = (None, RANK_BARRIER_SECONDS)
    suite.timedelta = lambda seconds: timedelta(seconds=SHORT_GROUP_TIMEOUT_SECONDS if seconds == 1 else seconds)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """dist.monitored_barrier() without its check of the name; timeouts may be numbers there too."""
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    qccl.monitored_barrier(group, None if seconds is None else timedelta(seconds=seconds), wait_all_ranks)


def name_backend_in_records_of_ddp() -> None:
    ddp = torch.nn.parallel.DistributedDataParallel
    original = ddp._get_ddp_logging_data

    def record(model: object) -> dict:
        data = original(model)
        return {**data, "backend_name": NAME} if data["backend_name"] == "custom" else data

    ddp._get_ddp_logging_data = record


sys.argv = sys.argv[:1]  # torch's test utilities parse the arguments
provide_expecttest()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import qccl  # noqa: E402

common = load_common()
enter_qccl()
if SETTINGS.stand_in:
    import stand_in

    stand_in.enter(common, NAME)
suite = load_suite()
widen(suite)
name_backend_in_records_of_ddp()
dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = monitored_barrier


class TorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """The tests. setUp() starts the ranks of one test, each a process that runs it."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(multiprocessing.get_context(SETTINGS.start).Process)


def skip_reason(name: str) -> str | None:
    """Why the decorators of a test skip it, found without starting its ranks. None if they do not.

    Runs the test in a forked process without a process group: a test that is not skipped fails there, or is killed.
    """
    if SETTINGS.stand_in and name in stand_in.CANNOT:
        return stand_in.CANNOT[name]
    test = TorchSuite(name)
    test.rank = 0
    child = os.fork()
    if child == 0:
        code = 0
        signal.setitimer(signal.ITIMER_REAL, PROBE_SECONDS)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            getattr(TorchSuite, name)(test)
        except SystemExit as exit_of_skip:
            code = exit_of_skip.code
        except unittest.SkipTest:
            code = common.TEST_SKIPS["generic"].exit_code
        except BaseException:
            pass
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    reasons = {skip.exit_code: skip.message for skip in common.TEST_SKIPS.values()}
    return reasons.get(code)
