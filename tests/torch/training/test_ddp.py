"""DistributedDataParallel over the backend."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import qccl

WORLD = 2
STEPS = 12
BATCH = 16


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8))


def make_data():
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(WORLD * BATCH * STEPS, 64, generator=generator)
    return inputs, torch.tanh(inputs[:, :8] * 2 + inputs[:, 8:16])


def train(model, batches, hook=None):
    if hook:
        model.register_comm_hook(*hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for inputs, targets in batches:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def weights_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def own_batches(rank):
    inputs, targets = make_data()
    for start in range(0, len(inputs), WORLD * BATCH):
        mine = slice(start + rank * BATCH, start + (rank + 1) * BATCH)
        yield inputs[mine], targets[mine]


def train_on_ranks(pg_options=None, make_hook=None, environment=None, **ddp_options):
    """One rank's weights after training, and the losses, after a check that all ranks' weights have the same bits."""

    def body(rank):
        model = DistributedDataParallel(make_model(), **ddp_options)
        losses = train(model, own_batches(rank), make_hook() if make_hook else None)
        return weights_of(model).numpy(), losses

    (weights, losses), *others = run_ranks(body, WORLD, pg_options=pg_options, environment=environment)
    assert all(weights.tobytes() == other.tobytes() for other, _ in others), "replicas differ"
    mean = torch.tensor([losses, *(other for _, other in others)]).mean(0)
    return torch.from_numpy(weights), mean


def train_alone():
    def body(_rank):
        inputs, targets = make_data()
        model = make_model()
        losses = train(model, zip(inputs.split(WORLD * BATCH), targets.split(WORLD * BATCH), strict=True))
        return weights_of(model).numpy(), losses

    weights, losses = run_ranks(body, 1)[0]
    return torch.from_numpy(weights), torch.tensor(losses)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_training_equals_one_process_with_the_whole_batch(transport):
    weights, losses = train_on_ranks(environment={"QCCL_TRANSPORT": transport})
    alone, losses_alone = train_alone()
    torch.testing.assert_close(weights, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(losses, losses_alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compression", ["minmax:bits=8", "minmax:bits=4", "cast:type=bf16"])
def test_compressed_training_ends_at_a_close_loss(compression):
    weights, losses = train_on_ranks(qccl.Options(compression=compression))
    alone, losses_alone = train_alone()
    assert not torch.equal(weights, alone), "nothing was compressed"
    assert losses[-1].item() == pytest.approx(losses_alone[-1].item(), rel=0.02)


def bf16_hook(state, bucket):
    """The hook under another name: torch refuses the original by name unless it has NCCL."""
    return default_hooks.bf16_compress_hook(state, bucket)


@pytest.mark.parametrize("hook", [default_hooks.fp16_compress_hook, bf16_hook])
def test_half_precision_hooks(hook):
    _, losses = train_on_ranks(make_hook=lambda: (None, hook))
    assert losses[-1].item() == pytest.approx(train_alone()[1][-1].item(), rel=0.02)


def test_power_sgd_hook_with_many_buckets_does_not_deadlock():
    def make_hook():
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=2, start_powerSGD_iter=3)
        return state, powerSGD_hook.powerSGD_hook

    def body(rank):
        torch.manual_seed(3)
        model = DistributedDataParallel(nn.Sequential(*(nn.Linear(64, 64) for _ in range(12))), bucket_cap_mb=0.016)
        model.register_comm_hook(*make_hook())
        for _ in range(8):
            model(torch.randn(4, 64)).square().mean().backward()
        return len(model.reducer._get_zeros_like_grad_buckets())

    assert min(run_ranks(body, WORLD)) >= 8


def test_unused_parameters_and_gradient_accumulation():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.always, self.odd = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x, odd):
            return self.odd(self.always(x)) if odd else self.always(x)

    def body(rank):
        torch.manual_seed(4)
        model = DistributedDataParallel(Sometimes(), find_unused_parameters=True)
        for step in range(4):
            with model.no_sync():
                model(torch.full((2, 8), float(rank)), step % 2).sum().backward()
            model(torch.full((2, 8), float(rank)), step % 2).sum().backward()
        return [parameter.grad.tolist() for parameter in model.parameters()]

    first, second = run_ranks(body, WORLD)
    assert first == second


def test_uneven_inputs_join():
    def body(rank):
        model = DistributedDataParallel(make_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        steps = 0
        with model.join():
            for _ in range(3 + 2 * rank):
                optimizer.zero_grad()
                model(torch.ones(4, 64)).square().mean().backward()
                optimizer.step()
                steps += 1
        return steps, weights_of(model).tolist()

    results = run_ranks(body, WORLD, pg_options=qccl.Options(compression="minmax:bits=8"))
    assert [steps for steps, _ in results] == [3, 5]
    assert results[0][1] == results[1][1]


def test_different_models_are_reported_by_torch():
    def body(rank):
        with pytest.raises(RuntimeError, match="DDP expects same model across all ranks"):
            DistributedDataParallel(nn.Sequential(*(nn.Linear(4, 4) for _ in range(1 + rank))))

    run_ranks(body, WORLD)


def test_forked_data_loader_workers_while_operations_run():
    def body(rank):
        inputs, targets = make_data()
        data = TensorDataset(inputs[rank::WORLD], targets[rank::WORLD])
        model = DistributedDataParallel(make_model())
        for _ in range(2):
            tensor = torch.ones(2_000_000)
            work = dist.all_reduce(tensor, async_op=True)
            train(model, DataLoader(data, batch_size=BATCH, num_workers=2))
            work.wait()
            assert tensor[0].item() == WORLD
        return weights_of(model).tolist()

    first, second = run_ranks(body, WORLD)
    assert first == second
