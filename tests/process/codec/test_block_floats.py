"""The formats of hardware that bench/micro/rate_distortion compares codecs with, by their definitions."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from bench.micro.block_floats import FORMATS, rounded


def block(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_mxfp4_scales_by_the_power_of_two_of_the_largest_and_saturates():
    # The largest is in [4, 8), so the scale is 1, and what lies above 6 saturates. Ties go to even mantissas.
    values = block(7.9, -5.1, -4.9, 2.5, 0.75, 0.25, 0.26, -0.0)
    assert rounded(values, "MXFP4").tolist() == [6, -6, -4, 2, 1, 0, 0.5, 0]
    assert rounded(values * 2**-20, "MXFP4").tolist() == (rounded(values, "MXFP4") * 2**-20).tolist()


def test_mxfp8_keeps_three_bits_of_mantissa():
    values = block(448, 449, 1.0625, 1.1875, 2**-9)
    assert rounded(values, "MXFP8 (e4m3)").tolist() == [448, 448, 1, 1.25, 2**-9]


def test_nvfp4_scales_each_block_by_e4m3():
    # The largest of all gets the scale 448; a block whose largest is 1/7 of it gets 64.
    values = np.zeros(32, np.float32)
    values[0], values[16], values[17] = 6 * 448, 6 * 64, 64
    assert rounded(values, "NVFP4").tolist() == values.tolist()
    values[17] = 0.26 * 64
    assert rounded(values, "NVFP4")[17] == 0.5 * 64


@pytest.mark.parametrize("name", FORMATS)
def test_zeros_odd_counts_and_signs(name):
    assert rounded(np.zeros(5, np.float32), name).tolist() == [0] * 5
    values = np.random.default_rng(1).standard_normal(1001).astype(np.float32)
    kept = rounded(values, name)
    assert len(kept) == 1001
    assert (kept == -rounded(-values, name)).all()
    assert 1e-5 < np.square(kept - values).sum() / np.square(values).sum() < 0.015
