// Sums of sparse tensors compared with dense ones: the cases of PyTorch's tests of a backend (several sparse
// dimensions, dense dimensions, refused calls), and random elements with duplicates of every type.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/half.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

class Sparse : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Sparse, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

using Indices = std::vector<std::int64_t>;

template <class T>
struct Coo {
  Indices sparse_sizes, dense_sizes, indices;
  std::vector<T> values;

  SparseView view() const { return {sparse_sizes, dense_sizes, data_type_of<T>(), indices, values.data()}; }
};

std::int64_t product(const Indices& sizes) {
  std::int64_t all = 1;
  for (const std::int64_t size : sizes) all *= size;
  return all;
}

// The sums of a dense tensor in double, and which of its elements were stored.
struct Dense {
  std::vector<double> sums;
  std::vector<bool> is_there;

  template <class T>
  void add(const Coo<T>& tensor) {
    const auto block = static_cast<std::size_t>(product(tensor.dense_sizes));
    sums.resize(static_cast<std::size_t>(product(tensor.sparse_sizes)) * block);
    is_there.resize(static_cast<std::size_t>(product(tensor.sparse_sizes)));
    const std::size_t elements = tensor.indices.size() / tensor.sparse_sizes.size();
    for (std::size_t i = 0; i < elements; ++i) {
      std::size_t place = 0;
      for (std::size_t d = 0; d < tensor.sparse_sizes.size(); ++d) {
        place = place * static_cast<std::size_t>(tensor.sparse_sizes[d]) +
                static_cast<std::size_t>(tensor.indices[d * elements + i]);
      }
      is_there[place] = true;
      for (std::size_t k = 0; k < block; ++k) {
        sums[place * block + k] += static_cast<double>(tensor.values[i * block + k]);
      }
    }
  }
};

template <class T>
void expect_equal(const SparseTensor& got, const Dense& want, double divisor = 1) {
  ASSERT_EQ(got.type, data_type_of<T>());
  const auto block = static_cast<std::size_t>(product(got.dense_sizes));
  std::size_t element = 0;
  for (std::size_t place = 0; place < want.is_there.size(); ++place) {
    if (!want.is_there[place]) continue;
    ASSERT_LT(element, got.elements());
    std::int64_t index = 0;
    for (std::size_t d = 0; d < got.sparse_sizes.size(); ++d) {
      index = index * got.sparse_sizes[d] + got.indices[d * got.elements() + element];
    }
    ASSERT_EQ(index, static_cast<std::int64_t>(place)) << "element " << element;
    for (std::size_t k = 0; k < block; ++k) {
      ASSERT_EQ(static_cast<double>(got.values_as<T>()[element * block + k]), want.sums[place * block + k] / divisor)
          << "place " << place << ", element " << k << " of its block";
    }
    ++element;
  }
  EXPECT_EQ(got.elements(), element) << "elements where no rank has one";
}

// PyTorch's input: rank r has indices 0 .. r of the first dimension and 0 of all others, and every value is 1.
Coo<float> ones_of(int rank, int world, std::size_t sparse_dimensions, std::size_t dense_dimensions) {
  const auto elements = static_cast<std::size_t>(rank) + 1;
  Coo<float> tensor;
  tensor.sparse_sizes.assign(sparse_dimensions, world);
  tensor.dense_sizes.assign(dense_dimensions, 2);
  tensor.indices.assign(sparse_dimensions * elements, 0);
  for (std::size_t i = 0; i < elements; ++i) tensor.indices[i] = static_cast<std::int64_t>(i);
  tensor.values.assign(elements << dense_dimensions, 1.0F);
  return tensor;
}

void expect_sum_of_ones(Communicator& comm, std::size_t sparse_dimensions, std::size_t dense_dimensions) {
  Dense want;
  for (int rank = 0; rank < comm.size(); ++rank) {
    want.add(ones_of(rank, comm.size(), sparse_dimensions, dense_dimensions));
  }
  const Coo<float> own = ones_of(comm.rank(), comm.size(), sparse_dimensions, dense_dimensions);
  expect_equal<float>(sparse_all_reduce(comm, own.view()), want);
}

TEST_P(Sparse, sums_over_one_to_three_sparse_dimensions) {
  for (const int world : {1, 2, 4}) {
    expect_success(world, [](Communicator& comm) {
      for (const std::size_t dimensions : {1, 2, 3}) expect_sum_of_ones(comm, dimensions, 0);
    });
  }
}

TEST_P(Sparse, sums_with_one_to_three_dense_dimensions) {
  for (const int world : {1, 2, 4}) {
    expect_success(world, [](Communicator& comm) {
      for (const std::size_t dimensions : {1, 2, 3}) expect_sum_of_ones(comm, 1, dimensions);
    });
  }
}

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST_P(Sparse, what_is_no_sparse_sum_is_refused_and_the_group_goes_on) {
  expect_success(2, [](Communicator& comm) {
    const Indices indices{0, 1};
    const std::vector<float> values{1, 2};
    const SparseView good{{4}, {}, DataType::float32, indices, values.data()};
    const auto refused = [&](SparseView view, const SparseOptions& options = {}) {
      return error_of([&] { sparse_all_reduce(comm, view, options); })
          .substr(std::string("QCCL all_reduce of a sparse tensor: ").size());
    };
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::prod, ReduceOp::bit_and, ReduceOp::bit_or}) {
      EXPECT_EQ(refused(good, {.op = op}),
                "there is no " + std::string(to_string(op)) + ", only sum, avg and premul_sum");
    }
    SparseView bad = good;
    bad.type = DataType::int32;
    EXPECT_EQ(refused(bad, {.op = ReduceOp::avg}), "there is no avg of int32");
    bad = good;
    bad.sparse_sizes = {};
    EXPECT_EQ(refused(bad), "it has no sparse dimension");
    bad = good;
    bad.sparse_sizes = {1};
    EXPECT_EQ(refused(bad), "element 1 has the index 1 in dimension 0, whose size is 1");
    bad.sparse_sizes = {2, 2, 2};
    EXPECT_EQ(refused(bad), "2 indices are no whole number for each of 3 dimensions");
    bad.sparse_sizes = {1LL << 40, 1LL << 40};
    EXPECT_EQ(refused(bad), "sizes [1099511627776, 1099511627776] are too large");
    bad = good;
    bad.dense_sizes = {-1};
    EXPECT_EQ(refused(bad), "a dimension can't have the size -1");
    bad.dense_sizes.assign(16, 1);
    EXPECT_EQ(refused(bad), "it has 17 dimensions, at most 16 can be");
    bad = good;
    bad.values = nullptr;
    EXPECT_EQ(refused(bad), "it has 2 elements and no values");
    const Indices negative{0, -1};
    bad = good;
    bad.indices = negative;
    EXPECT_EQ(refused(bad), "element 1 has the index -1 in dimension 0, whose size is 4");
    EXPECT_EQ(sparse_all_reduce(comm, good).values_as<float>()[1], 4.0F);
  });
}

TEST_P(Sparse, ranks_that_differ_fail_on_all_with_both_named) {
  expect_success(3, [](Communicator& comm) {
    const Indices indices{0, 1};
    const std::vector<float> values(12, 1.0F);
    const std::int64_t size = comm.rank() == 2 ? 6 : 5;
    EXPECT_EQ(error_of([&] {
                sparse_all_reduce(comm, {{size}, {}, DataType::float32, indices, values.data()});
              }),
              "QCCL all_reduce of a sparse tensor: rank 0 of the group has size [5] with 1 sparse dimensions of "
              "float32, sum, automatic; rank 2 has size [6] with 1 sparse dimensions of float32, sum, automatic");
    const auto fails = [&](const SparseView& view, const SparseOptions& options = {}) {
      return error_of([&] { sparse_all_reduce(comm, view, options); }) != "no error";
    };
    const bool odd = comm.rank() == 1;
    EXPECT_TRUE(fails({{5}, odd ? Indices{3} : Indices{}, DataType::float32, indices, values.data()}));
    EXPECT_TRUE(fails(
        {odd ? Indices{5} : Indices{5, 3}, odd ? Indices{3} : Indices{}, DataType::float32, indices, values.data()}));
    EXPECT_TRUE(fails({{5}, {}, odd ? DataType::int32 : DataType::float32, indices, values.data()}));
    const SparseView good{{5}, {}, DataType::float32, indices, values.data()};
    EXPECT_TRUE(fails(good, {.op = odd ? ReduceOp::avg : ReduceOp::sum}));
    EXPECT_TRUE(fails(good, {.dense = odd}));
    EXPECT_EQ(sparse_all_reduce(comm, good).values_as<float>()[0], 3.0F);
  });
}

// Small integers, so that every sum is exact; indices are in any order, with duplicates.
template <class T>
Coo<T> random_elements(int rank, const Indices& sparse_sizes, const Indices& dense_sizes, std::size_t elements) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 1000 + elements);
  Coo<T> tensor{sparse_sizes, dense_sizes, {}, {}};
  for (const std::int64_t size : sparse_sizes) {
    for (std::size_t i = 0; i < elements; ++i) {
      tensor.indices.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size)));
    }
  }
  for (std::size_t i = 0; i < elements * static_cast<std::size_t>(product(dense_sizes)); ++i) {
    tensor.values.push_back(static_cast<T>(static_cast<int>(random() % 9) - 4));
  }
  return tensor;
}

template <class T>
void expect_random_sums(Communicator& comm, const Indices& sparse_sizes, const Indices& dense_sizes) {
  // Ranks without elements, ranks with unequal counts, and more elements than indices.
  for (const std::size_t elements : {0, 7, 200}) {
    const auto of_rank = [&](int rank) {
      return random_elements<T>(rank, sparse_sizes, dense_sizes, static_cast<std::size_t>(rank) * elements);
    };
    Dense want;
    for (int rank = 0; rank < comm.size(); ++rank) want.add(of_rank(rank));
    for (const auto dense : {std::optional<bool>{}, std::optional(true), std::optional(false)}) {
      expect_equal<T>(sparse_all_reduce(comm, of_rank(comm.rank()).view(), {.dense = dense}), want);
    }
  }
}

TEST_P(Sparse, sums_of_random_elements_with_duplicates_of_every_type) {
  for (const int world : {1, 2, 3}) {
    expect_success(world, [](Communicator& comm) {
      expect_random_sums<float>(comm, {50}, {});
      expect_random_sums<float>(comm, {6, 7}, {3});
      expect_random_sums<double>(comm, {4, 3, 2}, {2, 2});
      expect_random_sums<std::int8_t>(comm, {9}, {5});
      expect_random_sums<std::int16_t>(comm, {9}, {});
      expect_random_sums<std::int32_t>(comm, {9}, {});
      expect_random_sums<std::int64_t>(comm, {9}, {0});
    });
  }
}

TEST_P(Sparse, places_beyond_32_bits) {
  expect_success(2, [](Communicator& comm) {
    const Indices indices{5'000'000'000 + comm.rank(), 7'000'000'000, 1, 1};
    const std::vector<std::uint8_t> values{200, 100};
    const SparseTensor sum = sparse_all_reduce(comm, {{8'000'000'000, 2}, {}, DataType::uint8, indices, values.data()});
    EXPECT_EQ(sum.indices, (Indices{5'000'000'000, 5'000'000'001, 7'000'000'000, 1, 1, 1}));
    EXPECT_EQ(sum.values_as<std::uint8_t>()[2], 200);
    EXPECT_EQ(sum.values_as<std::uint8_t>()[0], 200);
  });
}

TEST_P(Sparse, booleans_are_or_and_integers_wrap_around) {
  expect_success(2, [](Communicator& comm) {
    const Indices indices{0, 1};
    const std::vector<std::uint8_t> flags{0, static_cast<std::uint8_t>(comm.rank() == 0 ? 0 : 64)};
    for (const bool dense : {false, true}) {
      const SparseTensor either =
          sparse_all_reduce(comm, {{3}, {}, DataType::boolean, indices, flags.data()}, {.dense = dense});
      EXPECT_EQ(either.values_as<std::uint8_t>()[0], 0);
      EXPECT_EQ(either.values_as<std::uint8_t>()[1], 1);
      const std::vector<std::int8_t> large{100, -100};
      const SparseTensor sum =
          sparse_all_reduce(comm, {{3}, {}, DataType::int8, indices, large.data()}, {.dense = dense});
      EXPECT_EQ(sum.values_as<std::int8_t>()[0], static_cast<std::int8_t>(200));
    }
  });
}

TEST_P(Sparse, averages_and_premultiplied_sums) {
  expect_success(3, [](Communicator& comm) {
    const Coo<float> own{{5}, {}, {3, 1, 3}, {1, 2, static_cast<float>(comm.rank())}};
    for (const bool dense : {false, true}) {
      const SparseTensor average = sparse_all_reduce(comm, own.view(), {.op = ReduceOp::avg, .dense = dense});
      EXPECT_EQ(average.indices, (Indices{1, 3}));
      EXPECT_EQ(average.values_as<float>()[0], 2.0F);
      EXPECT_EQ(average.values_as<float>()[1], 2.0F);
      const SparseTensor sum = sparse_all_reduce(
          comm, own.view(), {.op = ReduceOp::premul_sum, .premul_factor = comm.rank() + 1.0, .dense = dense});
      EXPECT_EQ(sum.values_as<float>()[0], 12.0F);
      EXPECT_EQ(sum.values_as<float>()[1], 6.0F + 0 + 2 + 6);
    }
  });
}

// Even if a sum depends on the order, sparse and dense sums agree, on all ranks; 16-bit floats are rounded once.
TEST_P(Sparse, the_same_bits_on_all_ranks_sparse_or_dense) {
  expect_success(3, [](Communicator& comm) {
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    std::normal_distribution<float> normal(0, 100);
    Indices indices;
    std::vector<float> values;
    for (int i = 0; i < 1000; ++i) indices.push_back(static_cast<std::int64_t>(random() % 300));
    for (int i = 0; i < 3000; ++i) values.push_back(i % 50 == 0 ? -0.0F : normal(random));
    std::vector<bfloat16> halves;
    for (const float x : values) halves.push_back(to_bfloat16(x));
    for (const auto& [type, data] : {std::pair<DataType, const void*>{DataType::float32, values.data()},
                                     std::pair<DataType, const void*>{DataType::bfloat16, halves.data()}}) {
      const SparseView own{{300}, {3}, type, indices, data};
      const SparseTensor sparse = sparse_all_reduce(comm, own, {.dense = false});
      const SparseTensor dense = sparse_all_reduce(comm, own, {.dense = true});
      EXPECT_EQ(sparse.indices, dense.indices);
      EXPECT_EQ(sparse.values, dense.values);
      std::vector<std::byte> first = sparse.values;
      comm.broadcast(first);
      EXPECT_EQ(first, sparse.values);
    }
    // 2048 + 1 is not a float16; 3 x 2048 + 3 x 1 rounded once is 6148.
    const std::vector<float16> steps{to_float16(2048), to_float16(1)};
    const Indices zeros{0, 0};
    const SparseTensor sum = sparse_all_reduce(comm, {{1}, {}, DataType::float16, zeros, steps.data()});
    EXPECT_EQ(sum.values_as<float16>()[0].bits, to_float16(6147).bits);
  });
}

// A stored element stays stored if its sum is zero, in sparse and dense sums.
TEST_P(Sparse, sums_that_are_zero_stay) {
  expect_success(2, [](Communicator& comm) {
    const Coo<float> own{{9}, {}, {4, 8}, {comm.rank() == 0 ? 1.0F : -1.0F, -0.0F}};
    for (const bool dense : {false, true}) {
      const SparseTensor sum = sparse_all_reduce(comm, own.view(), {.dense = dense});
      EXPECT_EQ(sum.indices, (Indices{4, 8}));
      EXPECT_FALSE(std::signbit(sum.values_as<float>()[1]));
    }
  });
}

TEST_P(Sparse, dense_where_that_is_less_to_send) {
  expect_success(3, [](Communicator& comm) {
    // 64 bytes of header per rank and direction are negligible here.
    const auto bytes_of = [&](std::size_t elements, std::optional<bool> dense) {
      Coo<float> own{{100'000}, {}, {}, std::vector<float>(elements, 1.0F)};
      for (std::size_t i = 0; i < elements; ++i) own.indices.push_back(static_cast<std::int64_t>(i));
      comm.barrier();
      const std::uint64_t before = comm.traffic().payload_bytes_sent;
      EXPECT_EQ(sparse_all_reduce(comm, own.view(), {.dense = dense}).elements(), elements);
      comm.barrier();
      return comm.traffic().payload_bytes_sent - before;
    };
    for (const std::size_t elements : {5'000, 20'000, 50'000, 100'000}) {
      const std::uint64_t automatic = bytes_of(elements, {});
      const std::uint64_t least = std::min(bytes_of(elements, true), bytes_of(elements, false));
      EXPECT_LT(automatic, least + 1000) << elements;
    }
  });
}

}  // namespace
}  // namespace qccl::testing
