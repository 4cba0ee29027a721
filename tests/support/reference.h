// The expected results of collectives, computed directly from all ranks' inputs: in rank order and bit
// for bit without compression, within the codec's stated bound with compression.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/call/call_arguments.h"
#include "support/elements.h"

namespace qccl::testing {

// The factor of a group's rank in every premul_sum of the tests.
double premul_factor_of(int member);

// Each rank's contribution: its input, which a premul_sum multiplies in float32 (float64: in double)
// and rounds to the type.
std::vector<ByteVector> contributions(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs);

// Ranks 0..N-1 added in that order: in the type itself, for 16-bit floats in float32 with one
// rounding at the end. avg divides once. min and max: NaN wins, -0 < +0. NaN has no payload.
// Booleans are bytes that are 0 or not, and become 0 or 1.
ByteVector reduce_in_rank_order(DataType type, ReduceOp op, const std::vector<ByteVector>& inputs);

// Replaces NaNs by the one without payload: without a computation, a NaN keeps its payload.
ByteVector with_plain_nans(DataType type, ByteVector data);

// The bits that every rank must hold after an uncompressed call, by rank. A broadcast's inputs are
// all ranks' buffers before it. Sums are in rank order, so for an algorithm with another order the
// inputs must give the same sum in any order. Inputs may be longer than the call's.
std::vector<ByteVector> expected_outputs(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs);
// `calls` is by rank, if they differ: all_to_all with counts.
std::vector<ByteVector> expected_outputs(const std::vector<engine::ResolvedCall>& calls,
                                         const std::vector<ByteVector>& inputs);

// The data after one encoding and decoding by the call's codec, from the data's first element on.
ByteVector decoded(const engine::ResolvedCall& call, const ByteVector& data);

// The same for a compressed call that only moves data: each rank's piece arrives decoded on every rank, its own
// included. Only an all_to_all leaves the piece that a rank sends to itself unchanged.
std::vector<ByteVector> expected_decoded(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs);
std::vector<ByteVector> expected_decoded(const std::vector<engine::ResolvedCall>& calls,
                                         const std::vector<ByteVector>& inputs);

// Bytes of `elements` on the wire by the codec's definition, for a run that begins with a bucket; if
// the size depends on their values, the most.
std::uint64_t stated_bytes(const Compression& compression, DataType type, std::uint64_t elements);

// Elements of a chunk when `count` are shared among `world` ranks (the last ones may get less).
std::uint64_t chunk_share(const engine::ResolvedCall& call, int world);
// Where the chunk of that index ends, in a call whose owners have shares.
std::uint64_t shared_chunk_end(const engine::ResolvedCall& call, std::size_t chunk);

// Checks each rank's result of a reduction against the exact sum or average and the error bound of
// codec and algorithm. Returns the first violation in words, or "".
//
// With B(S) the codec's bound for a bucket of S, and S_r the sum of rank r and all ranks below it in
// the algorithm's tree (support/sum_tree.h):  E_r = sum of E_child + B(S_r +- those). The bound is the
// sum of the owner's children's E, plus B(S) again if the result travels (all_reduce by anything but
// one-shot). SRA's tree is a star: the bounds of all ranks' inputs but the owner's. One-shot: the
// bounds of all ranks' inputs. Added to this is the rounding of float32 additions, n * 2^-24 * sum
// |x_i| for n parts, of 16-bit partial sums that travel raw, and of the result's own type. Elements that
// share a bucket with a non-finite value must be non-finite; others may be only by overflow.
std::string check_bound(const engine::ResolvedCall& call, const std::vector<ByteVector>& inputs,
                        const std::vector<ByteVector>& outputs);

}  // namespace qccl::testing
