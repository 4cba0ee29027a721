"""Pipeline functions: schedules, the ring, broadcasts, and refused calls."""

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import qccl
from qccl.pipeline import (
    Pipeline,
    broadcast_float_list,
    broadcast_from_last_pipeline_stage,
    broadcast_from_last_to_first_pipeline_stage,
    broadcast_int_list,
    broadcast_tensor,
    copy_from_last_to_first_pipeline_stage,
    recv_from_prev_pipeline_rank_,
    send_to_next_pipeline_rank,
)

LARGE = (2, 100_000)  # more than the eager limit, so that sends wait for their receiver


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_model_in_stages_has_the_gradients_of_the_whole(stages, known, transport):
    def body(rank):
        layers = [torch.nn.Linear(8, 8) for _ in range(stages)]
        for number, layer in enumerate(layers):
            torch.nn.init.constant_(layer.weight, 0.1 * (number + 1))
            torch.nn.init.constant_(layer.bias, 0.1)
        data = torch.arange(16.0).reshape(2, 8)
        expected = data
        for layer in layers:
            expected = layer(expected)
        expected.sum().backward()
        gradients = [layer.weight.grad.clone() for layer in layers]
        layers[rank].zero_grad()

        pipeline = Pipeline(variable_shapes=not known)
        shape = (2, 8) if known else None
        for _ in range(2):
            layers[rank].zero_grad()
            received = pipeline.recv_forward(shape)
            assert (received is None) == pipeline.is_first == (rank == 0)
            output = layers[rank](data if received is None else received)
            gradient = pipeline.send_forward_recv_backward(output, shape)
            if pipeline.is_last:
                assert gradient is None
                torch.testing.assert_close(output, expected)
                output.sum().backward()
            else:
                output.backward(gradient)
            pipeline.send_backward(None if received is None else received.grad)
            torch.testing.assert_close(layers[rank].weight.grad, gradients[rank])

    run_ranks(body, stages, environment={"QCCL_TRANSPORT": transport})


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_around_the_ring_both_ways_at_once(stages, known):
    def body(rank):
        pipeline = Pipeline(variable_shapes=not known)
        shape = LARGE if known else None
        following, previous = (rank + 1) % stages, (rank - 1) % stages
        output, gradient = torch.full(LARGE, float(rank)), torch.full(LARGE, -1.0 - rank)
        both = pipeline.send_forward_backward_recv_forward_backward(output, gradient, True, True, shape)
        assert [tensor[0, 0].item() for tensor in both] == [previous, -1 - following]
        assert pipeline.send_forward_recv_forward(gradient, True, shape)[1, 1].item() == -1 - previous
        assert pipeline.send_backward_recv_backward(output, True, shape)[1, 1].item() == following
        alone = pipeline.send_forward_recv_forward(output if rank == 0 else None, previous == 0, shape)
        assert (alone is None) == (previous != 0)

    run_ranks(body, stages)


@pytest.mark.parametrize("known", [True, False])
def test_messages_of_different_ways_do_not_meet(known):
    def body(rank):
        pipeline = Pipeline(variable_shapes=not known)
        shape = (1,) if known else None
        if rank == 1:
            pipeline.send_forward_recv_forward(torch.ones(1), False)
            pipeline.send_backward_recv_backward(torch.ones(1) * 2, False)
            copy_from_last_to_first_pipeline_stage((1,), torch.float32, torch.ones(1) * 3)
        else:
            token = torch.zeros(1)
            copy_from_last_to_first_pipeline_stage((1,), torch.float32, token)
            assert token.item() == 3
            assert pipeline.send_backward_recv_backward(None, True, shape).item() == 2
            assert pipeline.send_forward_recv_forward(None, True, shape).item() == 1

    run_ranks(body)


# Each stage sends first what the other needs, so it does not matter what the two wait for afterwards.
@pytest.mark.parametrize("known", [True, False])
def test_neighbours_that_call_different_functions(known):
    def body(rank):
        pipeline = Pipeline(variable_shapes=not known)
        shape = LARGE if known else None
        if rank == 0:
            gradient = pipeline.send_forward_recv_backward(torch.ones(LARGE), shape)
            assert gradient[0, 0].item() == 2
            pipeline.send_forward(torch.ones(LARGE))
        else:
            received = pipeline.recv_forward(shape)
            after = pipeline.send_backward_recv_forward(received.detach() * 2, shape)
            assert after[0, 0].item() == 1

    run_ranks(body)


def test_neighbours_in_place():
    def body(rank):
        buffer = torch.full((3,), float(rank))
        if rank > 0:
            recv_from_prev_pipeline_rank_(buffer)
            assert buffer.tolist() == [0.0] * 3
        if rank < 2:
            send_to_next_pipeline_rank(buffer)
        if rank == 0:
            with pytest.raises(RuntimeError, match="stage 0 of 3 is the first"):
                recv_from_prev_pipeline_rank_(buffer)
        if rank == 2:
            with pytest.raises(RuntimeError, match="stage 2 of 3 is the last"):
                send_to_next_pipeline_rank(buffer)

    run_ranks(body, 3)


def test_the_last_stage_tells_the_others():
    def body(rank):
        last = rank == 2
        told = broadcast_from_last_pipeline_stage([2, 3], torch.float32, torch.full((2, 3), 5.0) if last else None)
        assert told.tolist() == [[5.0] * 3] * 2
        unknown = broadcast_from_last_pipeline_stage(None, torch.int64, torch.tensor([4, 2]) if last else None)
        assert unknown.tolist() == [4, 2]
        ends = broadcast_from_last_to_first_pipeline_stage([2], torch.float32, torch.ones(2) if last else None)
        assert ends is None if rank == 1 else ends.tolist() == [1, 1]
        # A column of a larger tensor, in place.
        table = torch.full((3, 2), float(rank))
        copy_from_last_to_first_pipeline_stage([3], torch.float32, table[:, 1])
        assert table.tolist() == {0: [[0, 2]] * 3, 1: [[1, 1]] * 3, 2: [[2, 2]] * 3}[rank]

    run_ranks(body, 3)


def test_tensors_and_lists_to_a_group():
    def body(rank):
        mesh = qccl.mesh.Mesh({"dp": 2, "tp": 2})
        group, root = mesh.group("tp"), mesh.coordinate("tp") == 1
        tensor = broadcast_tensor([2], torch.float64, torch.tensor([rank, 7.0]).double() if root else None, 1, group)
        assert tensor.tolist() == [rank | 1, 7]
        assert broadcast_int_list(3, [1, -2, 3_000_000_000] if rank == 0 else None).tolist() == [1, -2, 3_000_000_000]
        floats = broadcast_float_list(None, [0.5, 1.5] if rank == 3 else None, 3)
        assert floats.dtype == torch.float32 and floats.tolist() == [0.5, 1.5]

    run_ranks(body, 4)


def test_wrong_calls_are_refused_before_anything_is_sent():
    def body(rank):
        pipeline = Pipeline()
        if rank == 0:
            with pytest.raises(ValueError, match="this rank sends: it needs `output`"):
                pipeline.send_forward(None)
        else:
            with pytest.raises(ValueError, match="needs the shape, or a Pipeline with variable_shapes"):
                pipeline.recv_forward()
            with pytest.raises(
                ValueError, match=r"expected a tensor of shape \[2\] and type torch.float32, got one of"
            ):
                broadcast_tensor([2], torch.float32, torch.zeros(3), 1)
            with pytest.raises(ValueError, match="this rank sends: it needs `list_values`"):
                broadcast_int_list(2, None, 1)
        with pytest.raises(ValueError, match="9 dimensions"):
            Pipeline(variable_shapes=True).send_forward_recv_forward(torch.zeros([1] * 9), False)

    run_ranks(body)


def test_a_wrong_size_fails_on_both_sides_and_names_both():
    def body(rank):
        pipeline = Pipeline()
        with pytest.raises(dist.DistBackendError, match=r"(?s)3.*4|4.*3"):
            pipeline.send_forward(torch.zeros(3)) if rank == 0 else pipeline.recv_forward((4,))
            pipeline.recv_backward((4,))  # a small send does not wait for its receiver

        dist.barrier()  # the process group is not lost

    run_ranks(body)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32, torch.complex64, torch.float8_e4m3fn])
def test_tensors_of_every_type_travel_contiguous_or_not(dtype, known):
    def body(rank):
        pipeline = Pipeline(None, dtype, variable_shapes=not known)
        sent = torch.arange(6.0).reshape(3, 2).to(dtype).t()
        if rank == 0:
            return pipeline.send_forward(sent)
        received = pipeline.recv_forward((2, 3) if known else None)
        assert received.shape == sent.shape and received.dtype == dtype
        assert received.detach().view(torch.uint8).equal(sent.contiguous().view(torch.uint8))

    run_ranks(body)


def test_a_pipeline_of_another_backend_or_of_different_settings_is_refused():
    def body(rank):
        with pytest.raises(ValueError, match="not a process group of the qccl backend but of gloo"):
            Pipeline(dist.new_group(backend="gloo"))
        with pytest.raises(dist.DistBackendError, match="variable_shapes is true on stage 0 and false on stage 1"):
            Pipeline(variable_shapes=rank == 0)

    run_ranks(body)


def test_a_stage_that_expects_another_type_is_told_which_came():
    def body(rank):
        if rank == 0:
            Pipeline(None, torch.int32, variable_shapes=True).send_forward(torch.ones(3, dtype=torch.int32))
        else:
            with pytest.raises(ValueError, match="received a tensor of int32, expected one of Float"):
                Pipeline(None, torch.float32, variable_shapes=True).recv_forward()

    run_ranks(body)
