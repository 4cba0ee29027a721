"""A second implementation of the 1-bit optimizers, for all ranks in one process and without communication, from their
papers and DeepSpeed's documentation: Tang et al., "1-bit Adam"; Li et al., "1-bit LAMB"; Lu et al., "0/1 Adam".

Common to the three: the first step changes nothing, moments have no bias correction, and ranks receive the 1-bit
average of the tensors that are sent (`Exchange`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from deepspeed_train import make_batches, make_examination
from torch import Tensor, nn

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def make_small_model() -> nn.Module:
    """Small, because a sign that depends on the rounding of a value near 0 changes all later steps, and few parameters
    have few such signs."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 16))


class Exchange:
    """The 1-bit average of a tensor over the ranks, with the errors of all of them.

    On worker r: b = x_r + e_r, sent as |b| / sqrt(P) and signs; e_r keeps the rest. The owner of a chunk averages the
    received values, adds its own error, and sends a scale and signs again.
    """

    def __init__(self, elements: int, world: int) -> None:
        assert elements % (8 * world) == 0, "this reference knows no padding"
        self.worker = [torch.zeros(elements) for _ in range(world)]
        self.server = torch.zeros(elements)

    def average(self, tensors: Sequence[Tensor]) -> Tensor:
        world = len(tensors)
        mean = self.server
        for error, tensor in zip(self.worker, tensors, strict=True):
            sent = one_bit(error.add_(tensor.flatten()))
            error.sub_(sent)
            mean = mean + sent / world
        result = torch.cat([one_bit(chunk) for chunk in mean.chunk(world)])
        self.server = mean - result
        return result.view_as(tensors[0])

    def forget(self) -> None:
        for error in (*self.worker, self.server):
            error.zero_()


closest_to_zero = math.inf
"""The smallest magnitude of all values whose sign was sent so far, in units of their scale."""


def one_bit(values: Tensor) -> Tensor:
    global closest_to_zero
    scale = (values.double().square().mean().sqrt()).float()
    closest_to_zero = min(closest_to_zero, float(values.abs().min() / scale))
    return torch.where(values >= 0, scale, -scale)


@dataclass
class Slot:
    """A parameter on all ranks, and the optimizer's state for it."""

    parameters: list[Tensor]
    exchange: Exchange
    momentum: list[Tensor] = field(init=False)
    variance: Tensor = field(init=False)
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.momentum = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.variance = torch.zeros_like(self.parameters[0])

    @property
    def gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters]

    @property
    def mean_gradient(self) -> Tensor:
        return sum(self.gradients) / len(self.gradients)

    @property
    def denominator(self) -> Tensor:
        return self.variance.sqrt() + EPSILON

    def moments(self, gradients: Sequence[Tensor], variance_too: bool) -> None:
        for momentum, gradient in zip(self.momentum, gradients, strict=True):
            momentum.mul_(BETA1).add_(gradient, alpha=1 - BETA1)
        if variance_too:
            self.variance.mul_(BETA2).addcmul_(gradients[0], gradients[0], value=1 - BETA2)

    def set_momentum(self, value: Tensor) -> None:
        for momentum in self.momentum:
            momentum.copy_(value)


class Optimizer:
    def __init__(self, models: Sequence[nn.Module], rate: float) -> None:
        world = len(models)
        groups = zip(*(model.parameters() for model in models), strict=True)
        self.slots = [Slot(list(group), Exchange(group[0].numel(), world)) for group in groups]
        self.rate = rate
        self.world = world
        self.steps = 0

    @torch.no_grad()
    def step(self) -> None:
        self.steps += 1
        if self.steps > 1:
            self.update()

    def update(self) -> None:
        raise NotImplementedError


class OneBitAdam(Optimizer):
    def __init__(self, models: Sequence[nn.Module], rate: float, freeze_step: int) -> None:
        super().__init__(models, rate)
        self.freeze_step = freeze_step

    def update(self) -> None:
        for slot in self.slots:
            if self.steps <= self.freeze_step:
                slot.moments([slot.mean_gradient] * self.world, variance_too=True)
            else:
                slot.moments(slot.gradients, variance_too=False)
                slot.set_momentum(slot.exchange.average(slot.momentum))
            for parameter in slot.parameters:
                parameter.sub_(self.rate * (slot.momentum[0] / slot.denominator))


class OneBitLamb(Optimizer):
    """After the freeze the momenta of all tensors are sent as one, each scaled to the same size."""

    def __init__(self, models: Sequence[nn.Module], rate: float, freeze_step: int) -> None:
        super().__init__(models, rate)
        self.freeze_step = freeze_step
        self.exchange = Exchange(sum(slot.variance.numel() for slot in self.slots), self.world)
        for slot in self.slots:
            slot.extra = {"ratio": 0.0, "factor": 1.0}

    def update(self) -> None:
        if self.steps <= self.freeze_step:
            for slot in self.slots:
                self._warm_up(slot)
            if self.steps == self.freeze_step:
                self._freeze()
        else:
            self._exchange()
            for slot in self.slots:
                self._compressed(slot)

    def _warm_up(self, slot: Slot) -> None:
        slot.moments([slot.mean_gradient] * self.world, variance_too=True)
        update = slot.momentum[0] / slot.denominator
        ratio = (slot.parameters[0].norm() / update.norm()).clamp(0.01, 10).item()
        if ratio != 1:
            slot.extra["ratio"] = 0.9 * slot.extra["ratio"] + 0.1 * ratio
        for parameter in slot.parameters:
            parameter.sub_(self.rate * ratio * update)

    def _freeze(self) -> None:
        sizes = [slot.momentum[0].square().mean().sqrt().item() for slot in self.slots]
        for slot, size in zip(self.slots, sizes, strict=True):
            slot.extra["scaling"] = sum(sizes) / len(sizes) / size
            slot.extra["fresh"] = slot.variance.clone()

    def _exchange(self) -> None:
        flat: list[list[Tensor]] = [[] for _ in range(self.world)]
        for slot in self.slots:
            slot.extra["last"] = slot.momentum[0].clone()
            slot.moments(slot.gradients, variance_too=False)
            for rank in range(self.world):
                flat[rank].append((slot.momentum[rank] * slot.extra["scaling"]).flatten())
        average = self.exchange.average([torch.cat(parts) for parts in flat])
        parts = average.split([slot.variance.numel() for slot in self.slots])
        for slot, part in zip(self.slots, parts, strict=True):
            slot.set_momentum(part.view_as(slot.variance) / slot.extra["scaling"])

    def _compressed(self, slot: Slot) -> None:
        gradient = (slot.momentum[0] - slot.extra["last"] * BETA1) / (1 - BETA1)
        fresh = slot.extra["fresh"].mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        last = slot.extra["factor"]
        factor = (slot.denominator / (fresh.sqrt() + EPSILON)).max().item()
        factor = min(max(factor, 0.5), 4.0)
        slot.extra["factor"] = min(max(factor, last * 0.9), last * 1.1)
        ratio = slot.extra["ratio"] * slot.extra["factor"]
        for parameter in slot.parameters:
            parameter.sub_(self.rate * ratio * (slot.momentum[0] / slot.denominator))


class ZeroOneAdam(Optimizer):
    """Until `var_freeze_step` the ranks send gradients; steps that update the variance, whose interval doubles, send
    them exactly. Later they send the accumulated updates, at steps whose interval also doubles."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        rate: float,
        var_freeze_step: int,
        var_update_scaler: int,
        local_step_scaler: int,
        local_step_clipper: int,
    ) -> None:
        super().__init__(models, rate)
        self.var_freeze_step = var_freeze_step
        self.var_update_scaler, self.var_interval, self.var_updates = var_update_scaler, 1, 0
        self.local_step_scaler, self.local_interval, self.local_steps = local_step_scaler, 1, 0
        self.local_step_clipper = local_step_clipper
        self.rates = 0.0
        for slot in self.slots:
            slot.extra["sums"] = [torch.zeros_like(parameter) for parameter in slot.parameters]

    def update(self) -> None:
        if self.steps <= self.var_freeze_step + 1:
            self._with_variance()
        else:
            self._frozen()
        if self.steps == self.var_freeze_step + 1:
            for slot in self.slots:
                slot.exchange.forget()

    def _with_variance(self) -> None:
        exact = self.steps % self.var_interval == 0
        for slot in self.slots:
            gradient = slot.mean_gradient if exact else slot.exchange.average(slot.gradients)
            slot.moments([gradient] * self.world, variance_too=exact)
            for parameter in slot.parameters:
                parameter.sub_(self.rate * (slot.momentum[0] / slot.denominator))
        if exact:
            self.var_updates += 1
            if self.var_updates % self.var_update_scaler == 0:
                self.var_interval *= 2

    def _frozen(self) -> None:
        self.rates += self.rate
        meet = self.steps % self.local_interval == 0
        for slot in self.slots:
            slot.moments(slot.gradients, variance_too=False)
            for parameter, momentum, total in zip(slot.parameters, slot.momentum, slot.extra["sums"], strict=True):
                update = -self.rate * (momentum / slot.denominator)
                parameter.add_(update)
                total.add_(update)
            if meet:
                self._meet(slot)
        if meet:
            self.rates = 0.0
        self.local_steps += 1
        if self.local_steps % self.local_step_scaler == 0:
            self.local_interval = min(self.local_step_clipper, self.local_interval * 2)

    def _meet(self, slot: Slot) -> None:
        average = slot.exchange.average([total * slot.denominator for total in slot.extra["sums"]])
        for parameter, total in zip(slot.parameters, slot.extra["sums"], strict=True):
            parameter.sub_(total).add_(average / slot.denominator)
            total.zero_()
        slot.set_momentum(average / -self.rates)


def train(make_optimizer: Any, world: int, steps: int) -> tuple[list[list[float]], float]:
    """Trains the small model like deepspeed_train.train(); returns the losses of every rank, and closest_to_zero."""
    models = [make_small_model() for _ in range(world)]
    optimizer = make_optimizer(models)
    batches = zip(*(make_batches(rank, world, steps) for rank in range(world)), strict=True)
    inputs, targets = make_examination()
    losses: list[list[float]] = [[] for _ in range(world)]
    for own in batches:
        for model, (own_inputs, own_targets) in zip(models, own, strict=True):
            model.zero_grad()
            nn.functional.mse_loss(model(own_inputs), own_targets).backward()
        optimizer.step()
        with torch.no_grad():
            for rank, model in enumerate(models):
                losses[rank].append(nn.functional.mse_loss(model(inputs), targets).item())
    return losses, closest_to_zero
