"""DeepSpeed's 1-bit all_reduce from Python: the parts of qccl.deepspeed that need no DeepSpeed (the rest is in
tests/integration)."""

import sys

import numpy
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import qccl

# DeepSpeed's results for input_of() in three steps with errors of zero at first, as in tests/golden/onebit_vectors.h:
# ranks, elements, elements with padding; then the scales of the chunks and the packed signs of each step.
GOLDEN = {
    "even": (2, 16, 16, [((0.571114659, 0.571114659), "5b4b"), ((0.717092454, 0.893003285), "4929")]),
    "padded": (2, 20, 32, [((0.442493856, 0.585223436), "5b4b60"), ((0.731009245, 0.80031383), "492920")]),
    "three": (3, 24, 24, [((0.268621832,) * 3, "7d2fa5"), ((0.472102791, 0.569672406, 0.569672406), "42a855")]),
}


def input_of(rank, count):
    return torch.tensor([((7 * i + 3 * rank) % 11 - 5) / 4 for i in range(count)])


def reduced(rank, count, padded, steps, make):
    backend = qccl.deepspeed.CompressedBackend()
    worker, server = torch.zeros(padded), torch.zeros(padded // backend.size)
    outputs = []
    for _ in range(steps):
        buffer = make(input_of(rank, count))
        result = backend.compressed_allreduce(buffer, worker, server, rank)
        assert result is buffer
        outputs.append(result.clone().numpy())
    return outputs


@pytest.mark.parametrize("case", GOLDEN)
def test_result_is_deepspeeds(case):
    world, count, padded, steps = GOLDEN[case]
    everyone = run_ranks(reduced, world, count, padded, len(steps), torch.clone)
    for outputs in everyone:
        for output, (scales, signs), first in zip(outputs, steps, everyone[0], strict=True):
            assert output.tobytes() == first.tobytes(), "ranks differ"
            assert numpy.packbits(output > 0).tobytes().hex() == signs
            expected = numpy.repeat(numpy.float32(scales), padded // world)[:count]
            numpy.testing.assert_allclose(abs(output), expected, rtol=0, atol=1e-6)


def test_tensors_of_other_layouts_and_types_get_the_same_values():
    world, count, padded, steps = GOLDEN["even"]

    def spread(tensor):
        return torch.zeros(count, 2)[:, 0].copy_(tensor)

    plain = run_ranks(reduced, world, count, padded, len(steps), torch.clone)[0]
    for make in (spread, torch.Tensor.double, lambda tensor: tensor.view(4, 4)):
        other = run_ranks(reduced, world, count, padded, len(steps), make)[0]
        for a, b in zip(plain, other, strict=True):
            numpy.testing.assert_array_equal(a, b.reshape(-1))


def test_wrong_arguments_are_refused():
    def body(_rank):
        backend = qccl.deepspeed.CompressedBackend()
        buffer, worker, server = torch.zeros(16), torch.zeros(16), torch.zeros(8)
        with pytest.raises(ValueError, match="worker_error must be float32, not Double"):
            backend.compressed_allreduce(buffer, worker.double(), server)
        with pytest.raises(ValueError, match="server_error must be contiguous"):
            backend.compressed_allreduce(buffer, worker, torch.zeros(16)[::2])
        with pytest.raises(ValueError, match="16"):
            backend.compressed_allreduce(buffer, torch.zeros(8), torch.zeros(4))
        assert backend.compressed_allreduce(buffer, worker, server) is buffer

    run_ranks(body)


def test_backend_of_other_groups_is_refused():
    def body(_rank):
        with pytest.raises(ValueError, match="not a process group of the qccl backend but of gloo"):
            qccl.deepspeed.CompressedBackend(type("Mpu", (), {"get_data_parallel_group": lambda self: gloo})())

    def with_gloo(rank):
        global gloo
        gloo = dist.new_group(backend="gloo")
        body(rank)
        dist.barrier()  # gloo's other ranks may still be connecting

    run_ranks(with_gloo)


def test_install_without_deepspeed_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(ImportError, match="DeepSpeed is not installed"):
        qccl.deepspeed.install()
