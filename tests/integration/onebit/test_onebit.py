"""DeepSpeed's own 1-bit optimizers over QCCL's 1-bit all_reduce, against a reference that uses neither."""

import importlib.util

import pytest
import reference
from deepspeed_ranks import WORLD, run_deepspeed
from deepspeed_train import make_config, train

import qccl

STEPS = 40
OPTIMIZERS = {
    "OneBitAdam": ({"lr": 3e-3, "freeze_step": 15}, reference.OneBitAdam),
    "OneBitLamb": ({"lr": 4e-2, "freeze_step": 15}, reference.OneBitLamb),
    # The variance is updated at every step, then every second. Steps are local from step 22 on: two of each interval up
    # to 4.
    "ZeroOneAdam": (
        {
            "lr": 3e-3,
            "var_freeze_step": 20,
            "var_update_scaler": 8,
            "local_step_scaler": 6,
            "local_step_clipper": 4,
        },
        reference.ZeroOneAdam,
    ),
}
TOLERANCE = 1e-5
LEAST_DISTANCE = 1e-6  # ten rounding errors
# 0/1 Adam's ranks differ between two synchronizations. The last step is one, and after it they still differ by
# rounding, because each rank subtracts what it had added.
APART = ("ZeroOneAdam",)


def train_with(optimizer, parameters, model=None):
    qccl.deepspeed.install()
    losses = train(make_config(optimizer, parameters, 0), STEPS, model=model)
    return losses, qccl.traffic().payload_bytes_sent


def train_ranks(optimizer, **changed):
    """Losses of each rank, and the bytes that it sent."""
    parameters, _ = OPTIMIZERS[optimizer]
    return run_deepspeed(lambda _rank: train_with(optimizer, {**parameters, **changed}), "qccl")


def train_reference(optimizer):
    """Runs in a separate process, because this one forks ranks and must have no threads."""
    parameters, make = OPTIMIZERS[optimizer]
    settings = {name: value for name, value in parameters.items() if name != "lr"}

    def body(_rank):
        return reference.train(lambda models: make(models, parameters["lr"], **settings), WORLD, STEPS)

    return run_deepspeed(body, "gloo", world=1)[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizer_trains_as_the_reference(optimizer):
    assert importlib.util.find_spec("cupy") is None
    parameters, _ = OPTIMIZERS[optimizer]
    results = run_deepspeed(lambda _rank: train_with(optimizer, parameters, reference.make_small_model()), "qccl")
    losses = [of_rank for of_rank, _ in results]
    reference_losses, closest_to_zero = train_reference(optimizer)
    assert closest_to_zero > LEAST_DISTANCE, "rounding decides over a sign: take another seed"
    for of_rank, expected in zip(losses, reference_losses, strict=True):
        assert of_rank == pytest.approx(expected, abs=TOLERANCE, rel=0)
    for of_rank in losses[1:]:
        if optimizer in APART:
            assert of_rank[-1] == pytest.approx(losses[0][-1], abs=TOLERANCE, rel=0)
        else:
            assert of_rank == losses[0]
    assert losses[0][-1] < 0.6 * losses[0][0], "it did not learn"


def test_name_of_the_compressed_backend_means_the_same():
    assert train_ranks("OneBitAdam", comm_backend_name="compressed") == train_ranks("OneBitAdam")


def test_compressed_steps_send_a_thirtieth():
    (_, uncompressed), *_ = train_ranks("OneBitAdam", freeze_step=10 * STEPS)
    (_, half), *_ = train_ranks("OneBitAdam", freeze_step=STEPS // 2)
    assert half < 0.6 * uncompressed


def test_other_process_groups_are_refused_by_name():
    def body(rank):
        with pytest.raises(ValueError, match="not a process group of the qccl backend but of gloo"):
            train_with("OneBitAdam", {"lr": 1e-3})
        return rank

    assert run_deepspeed(body, "gloo") == [0, 1]
