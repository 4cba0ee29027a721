"""DeepSpeed's ZeRO over the backend: the same losses as over gloo, and compressed gradients under it."""

import pytest
import torch.distributed as dist
from deepspeed_ranks import run_deepspeed
from deepspeed_train import make_config, train

import qccl

STEPS = 20
STAGES = (0, 1, 2, 3)
ADAM = {"lr": 3e-3, "torch_adam": True}


def train_with_adam(stage, compression=None):
    before = qccl.traffic().payload_bytes_sent if dist.get_backend() == "qccl" else 0
    losses = train(make_config("Adam", ADAM, stage), STEPS, compression)
    sent = qccl.traffic().payload_bytes_sent - before if dist.get_backend() == "qccl" else 0
    return losses, sent


def losses_of(backend, stage, compression=None):
    """The losses and the bytes sent of one rank, after a check that all ranks have the same losses."""
    (losses, sent), *others = run_deepspeed(lambda _rank: train_with_adam(stage, compression), backend)
    assert all(losses == other for other, _ in others), "ranks differ"
    return losses, sent


@pytest.mark.parametrize("stage", STAGES)
def test_zero_trains_as_over_gloo(stage):
    over_gloo, _ = losses_of("gloo", stage)
    over_qccl, _ = losses_of("qccl", stage)
    assert over_qccl == pytest.approx(over_gloo, rel=1e-6)
    assert over_qccl[-1] < over_qccl[0] / 2, "it did not learn"


@pytest.mark.parametrize("compression, tolerance", [("minmax:bits=8", 0.005), ("minmax:bits=4", 0.01)])
@pytest.mark.parametrize("stage", [1, 2])
def test_compression_under_zero_keeps_the_loss(stage, compression, tolerance):
    exact, exact_bytes = losses_of("qccl", stage)
    compressed, compressed_bytes = losses_of("qccl", stage, compression)
    assert compressed != exact, "nothing was compressed"
    assert compressed[-1] == pytest.approx(exact[-1], rel=tolerance)
    assert compressed_bytes < 0.75 * exact_bytes  # the parameters that ZeRO gathers stay uncompressed


def test_deepspeed_without_onebit_optimizers_is_told_the_other_way():
    with pytest.raises(ImportError, match=r"no 1-bit optimizers: 0.19.6 was the last .*set_compression\(engine"):
        qccl.deepspeed.install()
