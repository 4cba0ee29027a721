"""torch.distributed.pipelining and qccl.pipeline with compressed activations and gradients."""

import copy

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import qccl
from qccl.pipeline import Pipeline

WIDTH, ROWS, MICROBATCHES, STEPS = 128, 1024, 4, 6


def make_layers(stages):
    torch.manual_seed(3)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(stages)]


def make_data():
    data = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(5))
    return data, 0.5 * data.roll(1, 1).tanh() + 0.3


def train_with_torch(rank, stages, schedule_type):
    """The last stage's losses, and the bytes that this stage has sent."""
    layer = make_layers(stages)[rank]
    stage = PipelineStage(layer, rank, stages, torch.device("cpu"))
    schedule = schedule_type(stage, n_microbatches=MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(layer.parameters(), lr=10.0)
    data, target = make_data()
    losses = []
    before = qccl.traffic().payload_bytes_sent
    for _ in range(STEPS):
        optimizer.zero_grad()
        own = []
        if rank == 0:
            schedule.step(data)
        elif rank == stages - 1:
            schedule.step(target=target, losses=own)
        else:
            schedule.step()
        optimizer.step()
        if own:
            losses.append(sum(loss.item() for loss in own) / len(own))
    return losses, qccl.traffic().payload_bytes_sent - before


def expected_losses(stages):
    model = torch.nn.Sequential(*copy.deepcopy(make_layers(stages)))
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    data, target = make_data()
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("schedule_type", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize("stages", [2, 4])
def test_torch_pipelines_train_alike_with_fewer_bytes(stages, schedule_type):
    plain = run_ranks(train_with_torch, stages, stages, schedule_type)
    options = qccl.Options(message_compression="int:bits=8")
    compressed = run_ranks(train_with_torch, stages, stages, schedule_type, pg_options=options)
    exact, losses = torch.tensor(plain[-1][0]), torch.tensor(compressed[-1][0])
    torch.testing.assert_close(exact, torch.tensor(expected_losses(stages)))
    assert exact[-1] < 0.6 * exact[0], "it trains"
    torch.testing.assert_close(losses, exact, rtol=0.01, atol=0)
    assert not losses.equal(exact)
    for rank in range(stages):
        assert 0 < compressed[rank][1] < 0.3 * plain[rank][1]


@pytest.mark.parametrize("error_feedback", [False, True])
@pytest.mark.parametrize("variable", [False, True])
def test_pipelines_of_qccl_train_alike_with_fewer_bytes(variable, error_feedback):
    stages = 3

    def body(rank, compression):
        layer = make_layers(stages)[rank]
        pipeline = Pipeline(variable_shapes=variable, compression=compression, error_feedback=error_feedback)
        optimizer = torch.optim.SGD(layer.parameters(), lr=10.0)
        data, target = make_data()
        shape = None if variable else data.shape
        losses = []
        before = qccl.traffic().payload_bytes_sent
        for _ in range(STEPS):
            optimizer.zero_grad()
            received = pipeline.recv_forward(shape)
            output = layer(data if received is None else received)
            gradient = pipeline.send_forward_recv_backward(output, shape)
            if pipeline.is_last:
                loss = torch.nn.functional.mse_loss(output, target)
                losses.append(loss.item())
                loss.backward()
            else:
                output.backward(gradient)
            pipeline.send_backward(None if received is None else received.grad)
            optimizer.step()
        return losses, qccl.traffic().payload_bytes_sent - before

    plain = run_ranks(body, stages, None)
    compressed = run_ranks(body, stages, "int:bits=8")
    exact, losses = torch.tensor(plain[-1][0]), torch.tensor(compressed[-1][0])
    torch.testing.assert_close(exact, torch.tensor(expected_losses(stages)))
    torch.testing.assert_close(losses, exact, rtol=0.01, atol=0)
    assert not losses.equal(exact)
    for rank in range(stages):
        assert 0 < compressed[rank][1] < 0.3 * plain[rank][1]


def test_stages_with_another_compression_are_refused_on_all():
    def body(rank):
        with pytest.raises(dist.DistBackendError, match="compression is none on stage 0 and int:bits=8"):
            Pipeline(compression="int:bits=8" if rank == 1 else None)

    run_ranks(body)
