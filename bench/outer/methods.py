"""The ways of training that bench/outer/compare compares."""

from dataclasses import dataclass

STREAMING = {"fragments": 4, "delay": 5}


@dataclass(frozen=True)
class Method:
    """`every` = 0: data parallel, whose gradients are compressed with error feedback."""

    every: int = 0
    compression: str = "none"
    fragments: int = 1
    delay: int = 0
    blend: float = 0.0
    error_decay: float = 1.0
    learning_rate: float = 0.7  # of the outer optimizer
    momentum: float = 0.9
    with_torchft: bool = False  # its DiLoCo over gloo, only on lines


METHODS = {
    "data parallel": Method(),
    "data parallel, 4 bits": Method(compression="int:bits=4"),
    "DiLoCo, H=30": Method(30),
    "DiLoCo 4 bits, H=30": Method(30, "int:bits=4"),
    "streaming, H=30": Method(30, **STREAMING),
    "streaming, H=30, blend 0.5": Method(30, **STREAMING, blend=0.5),
    "streaming 4 bits, H=30": Method(30, "int:bits=4", **STREAMING),
    "streaming 2 bits, H=30": Method(30, "h4:bits=2", **STREAMING),
    "streaming 4 bits, H=100": Method(100, "int:bits=4", **STREAMING),
    "SparseLoCo, H=30": Method(30, "topk:density=0.02,values=int2", error_decay=0.95, learning_rate=1, momentum=0),
    "torchft DiLoCo, H=100": Method(100, with_torchft=True),
}
BASE = "data parallel"
