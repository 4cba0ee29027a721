#!/usr/bin/env python3
"""Computes the numbers of the golden tests independently of the library: wire bytes from the tables in
src/wire/, outputs from the definitions of the codecs and of scatter-reduce-all-gather.

    pip install numpy xxhash && python tests/golden/make_vectors.py
"""

import math
import struct

import numpy as np
import xxhash

WORLD, COUNT = 3, 1000
f32 = np.float32


def fixed_inputs(count=COUNT):
    """24-bit numbers between -128 and 128, exact in float32."""
    index = np.arange(count, dtype=np.uint64)
    mixed = [(index * 2654435761 + rank * 123456789) % 2**32 for rank in range(WORLD)]
    return [((part >> 8).astype(np.float64) / 65536 - 128).astype(f32) for part in mixed]


class Minmax:
    def __init__(self, bits, bucket_size):
        self.bits, self.bucket_size = bits, bucket_size

    def encode(self, values):
        levels, headers, codes = f32(2**self.bits - 1), b"", []
        for begin in range(0, len(values), self.bucket_size):
            bucket = values[begin : begin + self.bucket_size]
            low, high = bucket.min(), bucket.max()
            unit = max(f32(high / levels) - f32(low / levels), f32(2.0**-126))
            scaled = (bucket - low) * f32(1 / unit)
            codes += [int(code) for code in np.floor(np.minimum(scaled, levels) + f32(0.5))]
            headers += struct.pack("<ff", unit, low + f32(0))
        packed = sum(code << (i * self.bits) for i, code in enumerate(codes))
        return headers + packed.to_bytes((len(codes) * self.bits + 7) // 8, "little")

    def decode(self, data, count):
        buckets = -(-count // self.bucket_size)
        packed = int.from_bytes(data[8 * buckets :], "little")
        result = np.empty(count, f32)
        for i in range(count):
            unit, low = struct.unpack_from("<ff", data, 8 * (i // self.bucket_size))
            code = packed >> (i * self.bits) & (2**self.bits - 1)
            result[i] = f32(low) + f32(code) * f32(unit)
        return result


class Bfloat16:
    bucket_size = 1

    def encode(self, values):
        bits = values.view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)

    def decode(self, data, _count):
        return (data.astype(np.uint32) << 16).view(f32)


def scatter_reduce_all_gather(codec, average=False):
    """Adds the ranks in order, with the owner's own part exact, and encodes the sum once."""
    inputs, output = fixed_inputs(), np.empty(COUNT, f32)
    unit = math.lcm(codec.bucket_size, 64)
    share = math.ceil(math.ceil(COUNT / WORLD) / unit) * unit
    for owner in range(WORLD):
        chunk = slice(min(COUNT, owner * share), min(COUNT, (owner + 1) * share))
        count = chunk.stop - chunk.start
        if count == 0:
            continue
        parts = [
            x[chunk] if rank == owner else codec.decode(codec.encode(x[chunk]), count) for rank, x in enumerate(inputs)
        ]
        total = (parts[0] + parts[1]) + parts[2]
        output[chunk] = codec.decode(codec.encode(total / f32(WORLD) if average else total), count)
    return output


def digest(values):
    return hex(xxhash.xxh3_64_intdigest(values.tobytes()))


def fingerprint(*parts, codec=None, settings=()):
    value = xxhash.xxh3_64_intdigest(struct.pack(f"<{len(parts)}Q", *parts), 0x7143434C)
    if codec:
        value = xxhash.xxh3_64_intdigest(codec, value)
        value = xxhash.xxh3_64_intdigest(struct.pack("<6d", *settings), value)
    return hex(value)


def frame(*fields):
    header = b"QCF1" + struct.pack("<HHQQQIII4xQI", *fields)
    return (header + struct.pack("<I", xxhash.xxh3_64_intdigest(header) & 0xFFFFFFFF)).hex()


def hello(*fields):
    body = b"QCCLHELO" + struct.pack("<IIIIQ24x", *fields)
    return (body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))).hex()


def main():
    a, b, c = fixed_inputs()
    print("sum", digest((a + b) + c))
    print("avg", digest(((a + b) + c) / f32(3)))
    print("prod", digest((a * b) * c))
    for bits, bucket_size, average in (
        (4, 64, False),
        (1, 1000, False),
        (8, 1024, False),
        (16, 7, False),
        (3, 100, True),
    ):
        name = f"minmax:bits={bits},bucket_size={bucket_size} {'avg' if average else 'sum'}"
        print(name, digest(scatter_reduce_all_gather(Minmax(bits, bucket_size), average)))
    print("cast:type=bf16", digest(scatter_reduce_all_gather(Bfloat16())))
    print("bucket of 5 bits", Minmax(5, 1024).encode(a[:16]).hex())
    # collective, count, type, op, root, algorithm, board, slice_bytes; name and settings of the codec
    bits, bucket_size = 4, 1024
    settings = bits, bucket_size, 0, 0, 0, 0
    print("fingerprint", fingerprint(0, 1024, 0, 0, 0, 2, 0, 131072, codec=b"minmax", settings=settings))
    print("fingerprint", fingerprint(1, 7, 6, 0, 2, 1, 0, 131072))
    ids = 0x1122334455667788, 0x0102030405060708, 0xA1A2A3A4A5A6A7A8
    print("frame", frame(1, 0x8001, *ids, 0x0A0B0C0D, 0x1A1B1C1D, 0x40000, 0xF1F2F3F4F5F6F7F8, 0x3A3B3C3D))
    print("goodbye", frame(7, *[0] * 9))
    print("hello", hello(1, 3, 5, 8, 0x1122334455667788))
    print("checksum of 0..255 and of nothing", digest(np.arange(256, dtype=np.uint8)), digest(np.empty(0)))


if __name__ == "__main__":
    main()
