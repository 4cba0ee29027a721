"""Formats of floats that share a scale in a block, as hardware has them: what encoding and decoding leaves of values.

OCP Microscaling Formats (MX) 1.0: 32 elements share a power of two, that of their largest magnitude over the largest
of the element type, and what is then too large saturates. NVFP4: 16 elements of e2m1 share a scale of e4m3, and all a
float32, so that the largest magnitude of a block is near 6.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class BlockFloat:
    element: type  # of ml_dtypes
    block: int
    bits: float  # an element, with its part of the scale


FORMATS = {
    "MXFP4": BlockFloat(ml_dtypes.float4_e2m1fn, 32, 4.25),
    "MXFP6 (e2m3)": BlockFloat(ml_dtypes.float6_e2m3fn, 32, 6.25),
    "MXFP6 (e3m2)": BlockFloat(ml_dtypes.float6_e3m2fn, 32, 6.25),
    "MXFP8 (e4m3)": BlockFloat(ml_dtypes.float8_e4m3fn, 32, 8.25),
    "NVFP4": BlockFloat(ml_dtypes.float4_e2m1fn, 16, 4.5),
}


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    """What a peer decodes of finite float32 values."""
    how = FORMATS[name]
    blocks = np.pad(values, (0, -len(values) % how.block)).reshape(-1, how.block)
    largest = np.abs(blocks).max(1, keepdims=True)
    scales = nvfp4_scales(largest) if name == "NVFP4" else mx_scales(largest, how.element)
    most = float(ml_dtypes.finfo(how.element).max)
    codes = np.clip(blocks / np.where(scales > 0, scales, 1), -most, most).astype(how.element)
    return (codes.astype(np.float32) * scales).reshape(-1)[: len(values)]


def mx_scales(largest: np.ndarray, element: type) -> np.ndarray:
    exponent_of_most = np.floor(np.log2(float(ml_dtypes.finfo(element).max)))
    _, exponents = np.frexp(largest)  # of a fraction below 1
    return np.where(largest > 0, np.exp2(np.clip(exponents - 1 - exponent_of_most, -127, 127)), 0).astype(np.float32)


def nvfp4_scales(largest: np.ndarray) -> np.ndarray:
    most, most_scale = 6, float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)
    of_all = np.float32(largest.max() / (most * most_scale))
    if of_all == 0:
        return np.zeros_like(largest)
    return (largest / most / of_all).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * of_all
