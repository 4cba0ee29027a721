#!/usr/bin/env python3
"""Computes the bytes of h4_test.cc independently of the library, from the definition in src/kernels/h4/h4_reference.h:
with dense matrices and whole numbers instead of butterflies, and Python's integers for the codes.

    pip install numpy && python tests/golden/make_h4_vectors.py
"""

import struct

import numpy as np

SEED, FIRST_BLOCK, BLOCK = 0x1234567, 4000000000, 256
LARGEST = np.float32(32600)
BOOKS = {  # thresholds, levels, D
    2: ([49], [12, 40], 0.11748),
    3: ([25, 52, 87], [13, 40, 71, 114], 0.034548),
    4: ([13, 26, 40, 55, 72, 92, 120], [5, 15, 25, 36, 48, 62, 79, 104], 0.009501),
}
f32 = np.float32


def fixed_input():
    """A block of noise, and a block of 100 elements of which one is not zero."""
    first = [((37 * i * i + 11) % 257 - 128) / 8 for i in range(BLOCK)]
    second = [0.0] * 100
    second[77] = -3.0
    return np.array(first + second, f32)


def transform_matrix():
    """H64 (x) (J4 - 2 I4)."""
    two = np.array([[1, 1], [1, -1]])
    matrix = np.ones((1, 1), int)
    for _ in range(6):
        matrix = np.kron(two, matrix)
    return np.kron(matrix, np.ones((4, 4), int) - 2 * np.eye(4, dtype=int))


T = transform_matrix()


def hashed(x):
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ x >> shift) * factor % 2**32
    return x ^ x >> 16


def first_row(block):
    return 2 * (hashed((~SEED + block * 0x9E3779B9) % 2**32) >> 27)


def signs(row):
    result = []
    for e in range(BLOCK):
        line = row + e // 16
        word = hashed((SEED + (16 * (line // 32) + e % 16 + 1) * 0x9E3779B9) % 2**32)
        result.append(-1 if word >> line % 32 & 1 else 1)
    return np.array(result)


def float_sum(values):
    """The sum of magnitudes in float32, in the order of h4_sum()."""
    rows = np.abs(values.astype(f32)).reshape(16, 16)
    parts = [((rows[k] + rows[k + 4]) + rows[k + 8]) + rows[k + 12] for k in range(4)]
    lanes = (parts[0] + parts[1]) + (parts[2] + parts[3])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def quantized(values, total):
    return np.rint(values.astype(f32) * (LARGEST / total)).astype(int)


def codes_of(q, row, bits):
    """Signed codes (magnitude, is negative), levels, and N, A, B."""
    thresholds, levels, _ = BOOKS[bits]
    z = T @ (signs(row) * q)
    squares = int((q * q).sum())
    m = int(np.rint(f32(50 * 65536) / np.sqrt(f32(squares))))
    cells = np.clip(z * m >> 16, -128, 127)
    negative = cells < 0
    magnitudes = np.searchsorted(thresholds, np.where(negative, -1 - cells, cells), side="right")
    chosen = np.where(negative, -1, 1) * np.array(levels)[magnitudes]
    return magnitudes, negative, chosen, z, (squares, int(z @ chosen), int(chosen @ chosen))


def gain(moments):
    squares, product, levels = moments
    if product * product >= 128 * squares * levels:
        return f32(squares) / f32(product)
    return f32(product) / (f32(256) * f32(levels))


def is_kept(q, bits, moments):
    squares, product, levels = moments
    error = 1 - product * product / (256 * squares * levels)
    sparse = squares > 32600 * 32600 // 256 * 10 // (5 - bits)
    assert error <= 1.1 * BOOKS[bits][2] or error > 1.5 * BOOKS[bits][2] or sparse, "the lattice would decide"
    return not sparse and error <= 1.1 * BOOKS[bits][2]


def bfloat16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def packed(magnitudes, negative, bits):
    """Packs the codes into fields, as h4_place() defines."""
    data = bytearray(32 * bits)
    order = [(0, 0), (1, 1), (5, 2), (3, 3), (6, 4), (7, 5), (2, 6)]
    for e in range(BLOCK):
        byte, field = sum((e >> source & 1) << target for source, target in order), e >> 4 & 1
        code = int(magnitudes[e]) | int(negative[e]) << bits - 1
        if bits == 4:
            data[byte] |= code << 4 * field
            continue
        data[byte % 64] |= code % 4 << 2 * (field + 2 * (byte // 64))
        if bits == 3:
            data[64 + byte % 32] |= code // 4 << field + 2 * (byte // 64) + 4 * (byte // 32 % 2)
    return bytes(data)


def encode_block(values, block, bits):
    """The scale's bits, the codes, and their decoded values."""
    row, total = first_row(block), float_sum(values)
    q = quantized(values, total)
    magnitudes, negative, levels, z, moments = codes_of(q, row, bits)
    if is_kept(q, bits, moments):
        scale = bfloat16(gain(moments) * (total / LARGEST))
        sums = signs(row) * (T @ levels)
    else:
        z_total = float_sum(z)
        other = row ^ 32
        magnitudes, negative, levels, _, moments = codes_of(quantized(z, z_total), other, bits)
        scale = bfloat16(gain(moments) * (z_total / LARGEST) * (total / LARGEST) * f32(1 / 256)) | 0x8000
        sums = signs(row) * (T @ (signs(other) * (T @ levels)))
    magnitude = struct.unpack("<f", struct.pack("<I", (scale & 0x7FFF) << 16))[0]
    return scale, packed(magnitudes, negative, bits), sums.astype(f32) * f32(magnitude)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main():
    values = fixed_input()
    padded = np.zeros(2 * BLOCK, f32)
    padded[: len(values)] = values
    for bits in BOOKS:
        blocks = [encode_block(padded[i * BLOCK :][:BLOCK], FIRST_BLOCK + i, bits) for i in range(2)]
        header = struct.pack("<IIHH", SEED, FIRST_BLOCK, *(scale for scale, _, _ in blocks))
        decoded = np.concatenate([block[2] for block in blocks])[: len(values)]
        print(bits, "bits, decoded", hex(fnv1a(decoded.tobytes())))
        print((header + b"".join(block[1] for block in blocks)).hex())


if __name__ == "__main__":
    main()
