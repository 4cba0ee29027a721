// Every collective in each kind of memory: results, in-place rules, roots, counts and types.
#include <cmath>
#include <latch>
#include <numeric>

#include "nccl/memory.h"

namespace qccl::testing {
namespace {

class Collectives : public Memories {};
INSTANTIATE_TEST_SUITE_P(All, Collectives, kEveryMemory, memory_name);

constexpr int kWorld = 4;

// Element i of rank r's values: distinct, and exact in every sum.
std::vector<float> values(int rank, std::size_t count, int seed = 0) {
  std::vector<float> made(count);
  for (std::size_t i = 0; i < count; ++i)
    made[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank * 100 + seed)) % 1001);
  return made;
}

std::vector<float> sum(std::size_t count) {
  std::vector<float> total(count);
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto part = values(rank, count);
    for (std::size_t i = 0; i < count; ++i) total[i] += part[i];
  }
  return total;
}

std::vector<float> slice(const std::vector<float>& all, std::size_t begin, std::size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}

std::vector<float> gathered(std::size_t count) {
  std::vector<float> all;
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto part = values(rank, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

const std::vector<std::size_t> kCounts{1, 1000, 100'003};

TEST_P(Collectives, all_reduce_adds_in_place_and_out_of_place) {
  run_ranks_as_threads(kWorld, [&](ncclComm_t comm, int rank) {
    for (const std::size_t count : kCounts) {
      Side side(GetParam());
      float* const input = side.make(values(rank, count));
      float* const output = side.make(std::vector<float>(count));
      EXPECT_NCCL(ncclAllReduce(input, output, count, ncclFloat32, ncclSum, comm, side.stream()));
      EXPECT_TRUE(side.read(output, count) == sum(count)) << count;
      EXPECT_TRUE(side.read(input, count) == values(rank, count));
      EXPECT_NCCL(ncclAllReduce(input, input, count, ncclFloat32, ncclSum, comm, side.stream()));
      EXPECT_TRUE(side.read(input, count) == sum(count)) << count;
    }
  });
}

// In host memory it can't: the call has no stream that waits.
class StreamsThatWait : public NeedsDevices {};

TEST_F(StreamsThatWait, a_call_returns_before_its_peers_have_called_and_several_follow_each_other) {
  constexpr std::size_t kCount = 1000;
  std::latch called(1);
  run_ranks_as_threads(2, [&](ncclComm_t comm, int rank) {
    Side side(Where::device);
    float* const memory = side.make(values(rank, kCount));
    if (rank == 1) called.wait();
    for (int i = 0; i < 3; ++i) {
      EXPECT_NCCL(ncclAllReduce(memory, memory, kCount, ncclFloat32, ncclSum, comm, side.stream()));
    }
    if (rank == 0) called.count_down();
    std::vector<float> expected(kCount);
    for (std::size_t k = 0; k < kCount; ++k) expected[k] = 4 * (values(0, kCount)[k] + values(1, kCount)[k]);
    EXPECT_TRUE(side.read(memory, kCount) == expected);
  });
}

TEST_P(Collectives, reduce_gives_the_root_alone_the_sum) {
  run_ranks_as_threads(kWorld, [&](ncclComm_t comm, int rank) {
    constexpr std::size_t kCount = 1000;
    for (int root = 0; root < kWorld; ++root) {
      Side side(GetParam());
      float* const input = side.make(values(rank, kCount));
      float* const output = rank == root ? side.make(std::vector<float>(kCount)) : nullptr;
      EXPECT_NCCL(ncclReduce(input, output, kCount, ncclFloat32, ncclSum, root, comm, side.stream()));
      if (rank == root) EXPECT_TRUE(side.read(output, kCount) == sum(kCount));
    }
  });
}

TEST_P(Collectives, broadcast_copies_the_roots_input_to_all_outputs) {
  run_ranks_as_threads(kWorld, [&](ncclComm_t comm, int rank) {
    for (const std::size_t count : kCounts) {
      for (int root = 0; root < kWorld; ++root) {
        Side side(GetParam());
        float* const input = rank == root ? side.make(values(root, count)) : nullptr;
        float* const output = side.make(std::vector<float>(count));
        EXPECT_NCCL(ncclBroadcast(input, output, count, ncclFloat32, root, comm, side.stream()));
        EXPECT_TRUE(side.read(output, count) == values(root, count)) << count << " from " << root;
        float* const own = side.make(values(rank, count, 5));
        EXPECT_NCCL(ncclBcast(own, count, ncclFloat32, root, comm, side.stream()));
        EXPECT_TRUE(side.read(own, count) == values(root, count, 5)) << count << " from " << root;
      }
    }
  });
}

TEST_P(Collectives, all_gather_and_reduce_scatter_have_parts_by_rank) {
  run_ranks_as_threads(kWorld, [&](ncclComm_t comm, int rank) {
    for (const std::size_t count : kCounts) {
      const std::size_t own = static_cast<std::size_t>(rank) * count;
      Side side(GetParam());
      float* const input = side.make(values(rank, count));
      float* const all = side.make(std::vector<float>(kWorld * count));
      EXPECT_NCCL(ncclAllGather(input, all, count, ncclFloat32, comm, side.stream()));
      EXPECT_TRUE(side.read(all, kWorld * count) == gathered(count)) << count;
      float* const wide = side.make(values(rank, kWorld * count));
      float* const part = side.make(std::vector<float>(count));
      EXPECT_NCCL(ncclReduceScatter(wide, part, count, ncclFloat32, ncclSum, comm, side.stream()));
      EXPECT_TRUE(side.read(part, count) == slice(sum(kWorld * count), own, count)) << count;
      EXPECT_NCCL(ncclReduceScatter(wide, wide + own, count, ncclFloat32, ncclSum, comm, side.stream()));
      EXPECT_TRUE(side.read(wide + own, count) == slice(sum(kWorld * count), own, count)) << count << " in place";
      EXPECT_NCCL(ncclAllGather(wide + own, wide, count, ncclFloat32, comm, side.stream()));
      EXPECT_TRUE(side.read(wide, kWorld * count) == sum(kWorld * count)) << count << " in place";
    }
  });
}

TEST_P(Collectives, gather_scatter_and_all_to_all_move_parts) {
  run_ranks_as_threads(kWorld, [&](ncclComm_t comm, int rank) {
    constexpr std::size_t kCount = 1001;
    for (int root = 0; root < kWorld; ++root) {
      Side side(GetParam());
      float* const input = side.make(values(rank, kCount));
      float* const all = rank == root ? side.make(std::vector<float>(kWorld * kCount)) : nullptr;
      EXPECT_NCCL(ncclGather(input, all, kCount, ncclFloat32, root, comm, side.stream()));
      if (rank == root) EXPECT_TRUE(side.read(all, kWorld * kCount) == gathered(kCount));
      float* const back = side.make(std::vector<float>(kCount));
      EXPECT_NCCL(ncclScatter(all, back, kCount, ncclFloat32, root, comm, side.stream()));
      EXPECT_TRUE(side.read(back, kCount) == values(rank, kCount));
    }
    Side side(GetParam());
    float* const parts = side.make(values(rank, kWorld * kCount));
    float* const exchanged = side.make(std::vector<float>(kWorld * kCount));
    EXPECT_NCCL(ncclAlltoAll(parts, exchanged, kCount, ncclFloat32, comm, side.stream()));
    const auto got = side.read(exchanged, kWorld * kCount);
    for (int peer = 0; peer < kWorld; ++peer) {
      const auto sent = slice(values(peer, kWorld * kCount), static_cast<std::size_t>(rank) * kCount, kCount);
      EXPECT_TRUE(slice(got, static_cast<std::size_t>(peer) * kCount, kCount) == sent) << peer;
    }
  });
}

TEST_P(Collectives, calls_without_elements_succeed_with_null_buffers) {
  run_ranks_as_threads(2, [&](ncclComm_t comm, int rank) {
    const Side side(GetParam());
    EXPECT_NCCL(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, side.stream()));
    EXPECT_NCCL(ncclBroadcast(nullptr, nullptr, 0, ncclInt8, 1, comm, side.stream()));
    EXPECT_NCCL(ncclSend(nullptr, 0, ncclInt8, 1 - rank, comm, side.stream()));
    EXPECT_NCCL(ncclRecv(nullptr, 0, ncclInt8, 1 - rank, comm, side.stream()));
  });
}

template <class T>
void expect_reductions(ncclComm_t comm, int rank, ncclDataType_t type, Where where) {
  struct Case {
    ncclRedOp_t op;
    T result;  // of 2 and 3
  };
  for (const Case& each : {Case{ncclSum, T(5)}, Case{ncclProd, T(6)}, Case{ncclMax, T(3)}, Case{ncclMin, T(2)}}) {
    Side side(where);
    T* const buffer = side.make(std::vector<T>(100, rank == 0 ? T(2) : T(3)));
    EXPECT_NCCL(ncclAllReduce(buffer, buffer, 100, type, each.op, comm, side.stream()));
    EXPECT_EQ(side.read(buffer, 100), std::vector<T>(100, each.result)) << "type " << type << ", op " << each.op;
  }
}

TEST_P(Collectives, every_type_has_every_reduction) {
  run_ranks_as_threads(2, [&](ncclComm_t comm, int rank) {
    expect_reductions<std::int8_t>(comm, rank, ncclInt8, GetParam());
    expect_reductions<std::uint8_t>(comm, rank, ncclUint8, GetParam());
    expect_reductions<std::int32_t>(comm, rank, ncclInt32, GetParam());
    expect_reductions<std::uint32_t>(comm, rank, ncclUint32, GetParam());
    expect_reductions<std::int64_t>(comm, rank, ncclInt64, GetParam());
    expect_reductions<std::uint64_t>(comm, rank, ncclUint64, GetParam());
    expect_reductions<float>(comm, rank, ncclFloat32, GetParam());
    expect_reductions<double>(comm, rank, ncclFloat64, GetParam());
  });
}

// Bits of 2, 3, 2.5 and 5.
struct Half {
  ncclDataType_t type;
  std::uint16_t two, three, mean, sum;
};

TEST_P(Collectives, half_types_are_added_and_averaged) {
  run_ranks_as_threads(2, [&](ncclComm_t comm, int rank) {
    for (const Half& half :
         {Half{ncclFloat16, 0x4000, 0x4200, 0x4100, 0x4500}, Half{ncclBfloat16, 0x4000, 0x4040, 0x4020, 0x40A0}}) {
      Side side(GetParam());
      const std::vector<std::uint16_t> own(10, rank == 0 ? half.two : half.three);
      std::uint16_t* const added = side.make(own);
      EXPECT_NCCL(ncclAllReduce(added, added, 10, half.type, ncclSum, comm, side.stream()));
      EXPECT_EQ(side.read(added, 10), std::vector<std::uint16_t>(10, half.sum));
      std::uint16_t* const mean = side.make(own);
      EXPECT_NCCL(ncclAllReduce(mean, mean, 10, half.type, ncclAvg, comm, side.stream()));
      EXPECT_EQ(side.read(mean, 10), std::vector<std::uint16_t>(10, half.mean));
    }
  });
}

TEST_P(Collectives, fp8_moves_but_is_not_added) {
  run_ranks_as_threads(2, [&](ncclComm_t comm, int rank) {
    for (const ncclDataType_t type : {ncclFloat8e4m3, ncclFloat8e5m2}) {
      Side side(GetParam());
      std::uint8_t* const buffer = side.make(std::vector<std::uint8_t>(9, rank == 0 ? 0x7F : 0));
      EXPECT_EQ(ncclAllReduce(buffer, buffer, 9, type, ncclSum, comm, side.stream()), ncclInvalidUsage);
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("fp8"), std::string::npos);
      EXPECT_NCCL(ncclBroadcast(buffer, buffer, 9, type, 0, comm, side.stream()));
      EXPECT_EQ(side.read(buffer, 9), std::vector<std::uint8_t>(9, 0x7F));
    }
  });
}

TEST_P(Collectives, premultiplied_sums_take_scalars_of_host_and_device) {
  run_ranks_as_threads(2, [&](ncclComm_t comm, int rank) {
    Side side(GetParam());
    float immediate = rank == 0 ? 0.5F : 2.0F;
    ncclRedOp_t op{};
    EXPECT_NCCL(ncclRedOpCreatePreMulSum(&op, &immediate, ncclFloat32, ncclScalarHostImmediate, comm));
    immediate = 1000;  // it was read
    float* const buffer = side.make(std::vector<float>(5, 8));
    EXPECT_NCCL(ncclAllReduce(buffer, buffer, 5, ncclFloat32, op, comm, side.stream()));
    EXPECT_EQ(side.read(buffer, 5), std::vector<float>(5, 20));
    double* const unused = side.make(std::vector<double>(5));
    EXPECT_EQ(ncclAllReduce(unused, unused, 5, ncclFloat64, op, comm, side.stream()), ncclInvalidArgument);
    EXPECT_NCCL(ncclRedOpDestroy(op, comm));
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);

    // Written by the stream's work before the call, after the operator was made.
    float* const scalar = side.make(std::vector<float>{0});
    EXPECT_NCCL(ncclRedOpCreatePreMulSum(&op, scalar, ncclFloat32, ncclScalarDevice, comm));
    const float factor = 0.25F;
    if (GetParam() == Where::host) *scalar = factor;
    if (GetParam() == Where::pinned) fake::enqueue(side.stream(), [=] { *scalar = factor; });
    if (GetParam() == Where::device) fake::write(side.stream(), scalar, &factor, sizeof(factor));
    float* const second = side.make(std::vector<float>(5, 8));
    EXPECT_NCCL(ncclAllReduce(second, second, 5, ncclFloat32, op, comm, side.stream()));
    EXPECT_EQ(side.read(second, 5), std::vector<float>(5, 4));
    EXPECT_NCCL(ncclRedOpDestroy(op, comm));
  });
}

TEST_P(Collectives, calls_of_two_threads_on_two_communicators_run_side_by_side) {
  const ncclUniqueId ids[2] = {make_id(), make_id()};
  run_threads(4, [&](int thread) {
    const int rank = thread % 2;
    ncclComm_t comm = nullptr;
    const CurrentDevice device(thread / 2);
    ASSERT_EQ(ncclCommInitRank(&comm, 2, ids[thread / 2], rank), ncclSuccess) << ncclGetLastError(nullptr);
    Side side(GetParam(), thread / 2);
    for (int i = 0; i < 20; ++i) {
      float* const buffer = side.make(std::vector<float>(1000, static_cast<float>(i + rank)));
      EXPECT_NCCL(ncclAllReduce(buffer, buffer, 1000, ncclFloat32, ncclSum, comm, side.stream()));
      EXPECT_EQ(side.read(buffer, 1000), std::vector<float>(1000, static_cast<float>(2 * i + 1)));
    }
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace qccl::testing
