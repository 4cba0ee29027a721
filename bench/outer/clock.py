"""Steps against the clock: a rank waits for the time that computing a step takes instead of computing it, so that ranks
that share a machine's cores don't slow each other down."""

import time
from collections.abc import Callable


def wait_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.perf_counter()))


def measure(step: Callable[[float], None], untimed: int, steps: int) -> float:
    """Seconds of one of the steps that follow the untimed ones; step() gets the instant at which it begins."""
    for _ in range(untimed):
        step(time.perf_counter())
    started = time.perf_counter()
    for _ in range(steps):
        step(time.perf_counter())
    return (time.perf_counter() - started) / steps
