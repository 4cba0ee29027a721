"""Calls whose tensors share memory: results are gloo's if gloo defines one, and do not depend on timing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

WORLD = 3
COUNTS = (1, 100_000)  # sent as cells of the board and as streams


def filled(count: int, *values: float) -> torch.Tensor:
    """A part of `count` elements for each value."""
    return torch.tensor(values, dtype=torch.float32).repeat_interleave(count)


def values(tensors: Any) -> Any:
    return tensors.clone() if isinstance(tensors, torch.Tensor) else [values(tensor) for tensor in tensors]


def all_reduce_coalesced_twice(group, rank, count):
    tensor = filled(count, rank + 1)
    group.allreduce_coalesced([tensor, tensor]).wait()
    return tensor


def all_reduce_coalesced_overlapping(group, rank, count):
    whole = filled(count, 1, 2, 3) * (rank + 1)
    group.allreduce_coalesced([whole[: 2 * count], whole[count:]]).wait()
    return whole


def all_reduce_coalesced_strided(group, rank, count):
    whole = filled(count, 1, 2, 3, 4).view(4, count).t() * (rank + 1)
    group.allreduce_coalesced([whole[:, ::2], whole[:, 1:]]).wait()
    return whole


def coalescing_manager_all_reduce_twice(group, rank, count):
    tensor = filled(count, rank + 1)
    with dist._coalescing_manager(group=group, async_ops=True) as coalesced:
        dist.all_reduce(tensor, group=group)
        dist.all_reduce(tensor, group=group)
    coalesced.wait()
    return tensor


def all_gather_into_tensors_one_output_twice(group, rank, count):
    output = torch.zeros(WORLD * count)
    inputs = [filled(count, rank), filled(count, 10 + rank)]
    group.allgather_into_tensor_coalesced([output, output], inputs).wait()
    return output


def all_gather_into_tensors_output_is_later_input(group, rank, count):
    first, second = torch.zeros(WORLD * count), torch.zeros(WORLD * WORLD * count)
    group.allgather_into_tensor_coalesced([first, second], [filled(count, rank + 1), first]).wait()
    return first, second


def all_gather_into_tensors_input_is_later_output(group, rank, count):
    first, second = torch.zeros(WORLD * count), filled(count, *(rank + 1.0,) * WORLD)
    group.allgather_into_tensor_coalesced([first, second], [second[:count], filled(count, -1)]).wait()
    return first, second


def all_gather_one_output_twice(group, rank, count):
    outputs = [torch.zeros(count), torch.zeros(count)]
    group.allgather([[outputs[0], outputs[0], outputs[1]]], [filled(count, rank)]).wait()
    return outputs


def all_gather_overlapping_outputs(group, rank, count):
    whole = torch.zeros(6 * count)
    outputs = [whole[: 2 * count], whole[count : 3 * count], whole[4 * count :]]
    group.allgather([outputs], [filled(count, rank, rank + 0.5)]).wait()
    return whole


def all_gather_input_is_another_ranks_output(group, rank, count):
    outputs = [filled(count, rank) for _ in range(WORLD)]
    group.allgather([outputs], [outputs[(rank + 1) % WORLD]]).wait()
    return outputs


def all_gather_coalesced_one_output_twice(group, rank, count):
    outputs = [[torch.zeros(count)] * 2 for _ in range(WORLD)]
    group.allgather_coalesced(outputs, [filled(count, rank), filled(count, 10 + rank)]).wait()
    return outputs


def gather_one_output_twice(group, rank, count):
    options = dist.GatherOptions()
    options.rootRank = 1
    outputs = [torch.zeros(count), torch.zeros(count)]
    lists = [[outputs[0], outputs[1], outputs[0]]] if rank == 1 else []
    group.gather(lists, [filled(count, rank)], options).wait()
    return outputs


def scatter_one_input_twice(group, rank, count):
    options = dist.ScatterOptions()
    options.rootRank = 1
    one, two, output = filled(count, 5), filled(count, 6), torch.zeros(count)
    group.scatter([output], [[one, two, one]] if rank == 1 else [], options).wait()
    return output


def reduce_scatter_one_input_twice(group, rank, count):
    output, part = torch.zeros(count), filled(count, rank + 1)
    group.reduce_scatter([output], [[part, part, part]]).wait()
    return output


def reduce_scatter_tensors_one_output_twice(group, rank, count):
    output = torch.zeros(count)
    inputs = [filled(count, 1 + rank, 10 + rank, 100 + rank), filled(count, 2, 2, 2)]
    group.reduce_scatter_tensor_coalesced([output, output], inputs).wait()
    return output


def reduce_scatter_tensors_output_in_later_input(group, rank, count):
    inputs = [filled(count, 1 + rank, 10 + rank, 100 + rank), filled(count, 2, 2, 2)]
    outputs = [inputs[1][rank * count : (rank + 1) * count], torch.zeros(count)]
    group.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    return inputs, outputs


def all_to_all_one_output_twice(group, rank, count):
    outputs = [torch.zeros(count), torch.zeros(count)]
    inputs = [filled(count, 10 * rank + peer) for peer in range(WORLD)]
    group.alltoall([outputs[0], outputs[0], outputs[1]], inputs).wait()
    return outputs


def all_to_all_in_place(group, rank, count):
    tensors = [filled(count, 10 * rank + peer) for peer in range(WORLD)]
    group.alltoall(tensors, tensors).wait()
    return tensors


def all_to_all_one_input_twice(group, rank, count):
    outputs, part = [torch.zeros(count) for _ in range(WORLD)], filled(count, rank)
    group.alltoall(outputs, [part, part, part]).wait()
    return outputs


CALLS: list[Callable[..., Any]] = [
    all_reduce_coalesced_twice,
    all_reduce_coalesced_overlapping,
    all_reduce_coalesced_strided,
    coalescing_manager_all_reduce_twice,
    all_gather_into_tensors_one_output_twice,
    all_gather_into_tensors_output_is_later_input,
    all_gather_into_tensors_input_is_later_output,
    all_gather_one_output_twice,
    all_gather_overlapping_outputs,
    all_gather_input_is_another_ranks_output,
    all_gather_coalesced_one_output_twice,
    gather_one_output_twice,
    scatter_one_input_twice,
    reduce_scatter_one_input_twice,
    reduce_scatter_tensors_one_output_twice,
    reduce_scatter_tensors_output_in_later_input,
]
ALL_TO_ALLS: list[Callable[..., Any]] = [all_to_all_one_output_twice, all_to_all_in_place, all_to_all_one_input_twice]


def gloo_has_lists_for_all_to_all(group):
    try:
        group.alltoall([torch.zeros(1) for _ in range(WORLD)], [torch.zeros(1) for _ in range(WORLD)]).wait()
    except RuntimeError as error:
        assert "does not support alltoall" in str(error)
        return False
    return True


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("calls", [CALLS, ALL_TO_ALLS], ids=["collectives", "all_to_all"])
def test_lists_that_share_memory_give_what_gloo_gives(calls, count):
    def body(rank):
        gloo = dist.new_group(backend="gloo")
        if calls is ALL_TO_ALLS and not gloo_has_lists_for_all_to_all(gloo):
            return None
        different = []
        for call in calls:
            expected, got = (values(call(group, rank, count)) for group in (gloo, dist.group.WORLD))
            try:
                torch.testing.assert_close(got, expected, rtol=0, atol=0)
            except AssertionError as error:
                different.append(f"{call.__name__}: {error}")
        return different

    ended = run_ranks(body, WORLD)
    if ended == [None] * WORLD:
        pytest.skip("this release's gloo takes no lists for all_to_all")
    for rank, different in enumerate(ended):
        assert different == [], f"rank {rank}: {different}"


@pytest.mark.parametrize("count", COUNTS)
def test_outputs_among_inputs_get_what_the_inputs_were(count):
    """gloo writes the outputs while it still reads the inputs."""

    def body(rank):
        group = dist.group.WORLD
        inputs = [filled(count, 1 + rank), filled(count, 10 + rank), filled(count, 100 + rank)]
        other = (rank + 1) % WORLD
        scattered, own = filled(count, 5), filled(count, 6)
        dist.scatter(scattered, [scattered, own, scattered] if rank == 1 else None, 1)
        assert scattered.equal(filled(count, 6 if rank == 1 else 5)) and own.equal(filled(count, 6))
        gathered = [filled(count, rank), torch.zeros(count), torch.zeros(count)]
        dist.gather(gathered[0], gathered if rank == 1 else None, 1)
        assert rank != 1 or torch.cat(gathered).equal(filled(count, 0, 1, 2))
        group.reduce_scatter([inputs[other]], [inputs]).wait()
        assert inputs[other].equal(filled(count, (6, 33, 303)[rank]))
        whole = filled(count, 10 * rank, 10 * rank + 1, 10 * rank + 2, -1)
        dist.all_to_all_single(whole[count:], whole[: 3 * count])
        assert whole.equal(filled(count, 10 * rank, rank, 10 + rank, 20 + rank))

    run_ranks(body, WORLD)


def test_coalesced_calls_that_share_memory_are_refused_by_name():
    def body(rank):
        whole = torch.zeros(4)
        refused = r"coalesced calls: {} and {} share memory that one of them writes: make them one after the other"
        for sent, received in ((whole, whole), (whole[:2], whole[1:3])):
            both = [dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
            with pytest.raises(ValueError, match=refused.format(r"0 \(qccl:send\)", r"1 \(qccl:recv\)")):
                dist.batch_isend_irecv(both)
        with (
            pytest.raises(ValueError, match=refused.format(r"1 \(qccl:broadcast\)", r"2 \(qccl:reduce\)")),
            dist._coalescing_manager(device=torch.device("cpu")),
        ):
            dist.broadcast(torch.zeros(4), 0)
            dist.broadcast(whole, 0)
            dist.reduce(whole, 0)

        whole[rank * 2 :] = 1
        columns = torch.zeros(3, 2)
        calls = [dist.P2POp(dist.isend, part, 1 - rank) for part in (whole[:2], whole[1:3])]
        calls += [dist.P2POp(dist.irecv, column, 1 - rank) for column in columns[:2].unbind(1)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        assert columns.tolist() == [[[0, 0], [0, 1], [0, 0]], [[1, 1], [1, 1], [0, 0]]][rank]

    run_ranks(body)
