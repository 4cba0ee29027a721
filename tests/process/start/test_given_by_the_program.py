"""What the program gives counts, whatever the environment holds from another launch: ranks are on two hosts, which are
network namespaces, and make one process group after the other, each with another variable."""

import json
import sys

from launchers import cluster, start_all

JOIN = """
import json, os, sys
from datetime import timedelta
import torch, torch.distributed as dist
rank, path, groups = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
for number, (way, port, variables) in enumerate(groups):
    os.environ.update(variables)
    limit = timedelta(seconds=20)
    here = {"rank": rank, "world_size": 2, "timeout": limit}
    if way == "address":
        dist.init_process_group("qccl", init_method=f"tcp://10.77.0.1:{port}", **here)
    elif way == "file":
        dist.init_process_group("qccl", init_method=f"file://{path}/{number}", **here)
    else:  # rank 0 calls its own host localhost
        host = "10.77.0.1" if rank else "localhost"
        store = dist.TCPStore(host, port, 2, is_master=rank == 0, timeout=limit)
        dist.init_process_group("qccl", store=store, **here)
    ones = torch.ones(4)
    dist.all_reduce(ones)
    print("sum", int(ones[0]), way, *variables.items(), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    for name in variables:
        del os.environ[name]
"""

# From another launch, or of one that means something else.
VARIABLES = {
    "MASTER_ADDR": ["localhost", "gone.invalid", "203.0.113.9"],
    "MASTER_PORT": ["0", "tcp://10.0.0.1:80"],
    "LOCAL_RANK": ["-1", "7"],
    "LOCAL_WORLD_SIZE": ["8", "2"],
    "TORCHELASTIC_RESTART_COUNT": ["x"],
}
WAYS = ("address", "store", "file")


# The hosts are the test's own, so ports are free there that they don't give to connections, of which each group leaves
# some behind.
FIRST_PORT = 20_000


def groups_of(cases: list[tuple[str, dict[str, str]]]) -> str:
    return json.dumps([(way, FIRST_PORT + number, variables) for number, (way, variables) in enumerate(cases)])


def test_torchs_address_store_and_ranks_are_not_overridden(tmp_path):
    # With the same ranks the other variables would count if the program left anything open.
    cases = [
        (way, {name: value})
        for way in WAYS
        for name, values in VARIABLES.items()
        for value in values
    ]  # fmt: skip
    cases += [(way, {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}) for way in WAYS]
    cases += [(way, {"RANK": "3", "WORLD_SIZE": "5", "LOCAL_RANK": "x"}) for way in WAYS]
    groups = groups_of(cases)
    with cluster(2, tmp_path) as (on_host, _):
        ranks = [
            ((*on_host(rank + 1), sys.executable, "-c", JOIN, rank, tmp_path, groups),
             {"RANK": str(rank), "WORLD_SIZE": "2"})
            for rank in (0, 1)
        ]  # fmt: skip
        done = start_all(*ranks)
    assert [each.returncode for each in done] == [0, 0], done[0].stdout + done[1].stdout
    assert done[0].stdout.count("sum 2") == len(cases)
