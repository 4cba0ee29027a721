"""Tensors from qccl.empty(), which all ranks of a host map."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import qccl


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_all_reduce_of_a_shared_tensor_and_of_a_slice_of_it(transport):
    def body(rank):
        tensor = qccl.empty(300, 101, dtype=torch.float64)
        assert tensor.shape == (300, 101) and tensor.dtype == torch.float64
        assert tensor.count_nonzero() == 0
        tensor.fill_(rank + 1)
        before = qccl.traffic().payload_bytes_sent
        dist.all_reduce(tensor)
        assert (tensor == 6).all()
        dist.all_reduce(tensor[100:200], dist.ReduceOp.MAX)
        dist.all_reduce(tensor[100:200])
        assert (tensor[100:200] == 18).all() and (tensor[:100] == 6).all() and (tensor[200:] == 6).all()
        assert (qccl.traffic().payload_bytes_sent == before) == (transport == "shm")

    run_ranks(body, 3, environment={"QCCL_TRANSPORT": transport})


def test_a_shared_tensor_outlives_its_name_and_its_group():
    def body(rank):
        group = dist.new_group([0, 1])
        view = qccl.empty((4096,), group=group)[::2]
        dist.destroy_process_group(group)
        view.fill_(rank)
        dist.all_reduce(view)
        assert (view == 1).all()

    run_ranks(body, 2)


def test_wrong_sizes_are_value_errors():
    def body(rank):
        with pytest.raises(ValueError, match="extent -1"):
            qccl.empty(-1)
        with pytest.raises(ValueError, match="so large"):
            qccl.empty(1 << 40, 1 << 40)
        assert qccl.empty(0).numel() == 0

    run_ranks(body, 2)
