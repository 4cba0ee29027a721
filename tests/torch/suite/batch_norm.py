"""The parts of batch normalisation that torch has for GPUs only and SyncBatchNorm is made of, in torch's operators."""

from typing import Any

import torch

Tensor = torch.Tensor
LIBRARY = torch.library.Library("aten", "IMPL")


def _dimensions(input: Tensor) -> list[int]:
    return [dimension for dimension in range(input.dim()) if dimension != 1]


def _wide(input: Tensor) -> Tensor:
    return input.to(torch.promote_types(input.dtype, torch.float32))


def _per_channel(values: Tensor, input: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (input.dim() - 2))


def stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(_wide(input), _dimensions(input), correction=0)
    return mean, (variance + eps).rsqrt()


def gather_stats(*arguments: Any) -> tuple[Tensor, Tensor]:
    _, means, invstds, running_mean, running_var, momentum, eps, counts = arguments
    share = (counts / counts.sum())[:, None]
    mean = (means * share).sum(0)
    variance = ((invstds**-2 - eps + (means - mean) ** 2) * share).sum(0)
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * counts.sum() / (counts.sum() - 1)).to(running_var.dtype), momentum)
    return mean, (variance + eps).rsqrt()


def elements(*arguments: Any) -> Tensor:
    input, weight, bias, mean, invstd, _ = arguments
    result = (_wide(input) - _per_channel(mean, input)) * _per_channel(invstd, input)
    if weight is not None:
        result = result * _per_channel(weight, input) + _per_channel(bias, input)
    return result.to(input.dtype)


def backward_sums(*arguments: Any) -> tuple[Tensor, ...]:
    gradient, input, mean, invstd, weight, *_ = arguments
    gradient = _wide(gradient)
    total = gradient.sum(_dimensions(input))
    with_input = (gradient * (_wide(input) - _per_channel(mean, input))).sum(_dimensions(input))
    kind = mean.dtype if weight is None else weight.dtype
    return total, with_input, (with_input * invstd).to(kind), total.to(kind)


def backward_elements(*arguments: Any) -> Tensor:
    gradient, input, mean, invstd, weight, total, with_input, counts = arguments
    count = counts.sum()
    centered = (_wide(input) - _per_channel(mean, input)) * _per_channel(invstd**2 * with_input / count, input)
    result = (_wide(gradient) - _per_channel(total / count, input) - centered) * _per_channel(invstd, input)
    return (result if weight is None else result * _per_channel(weight, input)).to(input.dtype)


def register() -> None:
    for name, function in {
        "batch_norm_stats": stats,
        "batch_norm_gather_stats_with_counts": gather_stats,
        "batch_norm_elemt": elements,
        "batch_norm_backward_reduce": backward_sums,
        "batch_norm_backward_elemt": backward_elements,
    }.items():
        LIBRARY.impl(name, function, "PrivateUse1")
