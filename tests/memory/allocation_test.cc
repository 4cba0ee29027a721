// The promise that a warm data path does not allocate: this program counts every allocation of the
// library and of the test.
#include <gtest/gtest.h>

#include "memory/counted_new.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

class Memory : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Memory, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

// One call of each kind and size class: two dozen calls.
class Calls {
 public:
  explicit Calls(Communicator& comm)
      : comm_(comm),
        other_(1 - comm.rank()),
        small_(100, 1.0F),
        large_(100'000, 1.0F),
        whole_(200'000, 1.0F),
        worker_error_(100'000),
        server_error_(50'000),
        feedback_(100'000),
        shared_(comm.allocate<float>(100'000)) {}

  static constexpr int kCalls = 26;

  void make_all() {
    comm_.all_reduce(small_, {.op = ReduceOp::max});
    comm_.all_reduce(large_, {.op = ReduceOp::max});
    comm_.all_reduce(large_, {.op = ReduceOp::avg, .compression = minmax({.bits = 4})});
    comm_.broadcast(large_, {.root = 1});
    comm_.all_gather(large_.data(), whole_.data(), large_.size(), DataType::float32);
    comm_.reduce_scatter(whole_.data(), large_.data(), large_.size(), DataType::float32, {.op = ReduceOp::max});
    comm_.all_reduce(large_, {.compression = block_int({.bits = 8}), .error_feedback = feedback_});
    comm_.all_reduce(large_, {.compression = minmax({.bits = 4}), .error_feedback = feedback_, .keep_input = true});
    comm_.all_reduce(large_, {.op = ReduceOp::max, .keep_input = true});
    comm_.compressed_allreduce(large_, worker_error_, server_error_);
    comm_.barrier();
    const Work reduced = comm_.all_reduce_async(small_, {.op = ReduceOp::max, .algorithm = Algorithm::sra});
    exchange(small_);
    exchange(large_);
    reduced.wait();
    comm_.all_reduce(large_, {.op = ReduceOp::max, .algorithm = Algorithm::hierarchical});
    comm_.all_reduce(std::span<float>(shared_), {.op = ReduceOp::max});
    comm_.sendrecv({small_.data(), 50, DataType::float32, other_}, {whole_.data(), 50, DataType::float32, other_});
    move_pieces();
    move_uneven_pieces();
  }

 private:
  void move_pieces() {
    comm_.reduce(small_.data(), large_.data(), small_.size(), DataType::float32, {.op = ReduceOp::max});
    comm_.gather(small_.data(), whole_.data(), small_.size(), DataType::float32);
    comm_.scatter(whole_.data(), large_.data(), large_.size(), DataType::float32, {.root = 1});
    comm_.all_to_all(small_.data(), whole_.data(), small_.size() / 2, DataType::float32);
  }
  void move_uneven_pieces() {
    comm_.all_gather_v(large_.data(), whole_.data(), uneven_, DataType::float32);
    comm_.reduce_scatter_v(whole_.data(), large_.data(), uneven_, DataType::float32, {.op = ReduceOp::max});
    comm_.gather_v(large_.data(), whole_.data(), uneven_, DataType::float32);
    comm_.scatter_v(whole_.data(), large_.data(), uneven_, DataType::float32);
    comm_.all_to_all_v(large_.data(), even_, whole_.data(), even_, DataType::float32);
  }
  // Rank 0 sends first, rank 1 receives from any source.
  void exchange(std::vector<float>& data) {
    if (comm_.rank() == 0) comm_.send(data, other_);
    if (comm_.rank() == 1) comm_.recv(data, kAnySource);
  }

  Communicator& comm_;
  const int other_;
  std::vector<float> small_;
  std::vector<float> large_;
  std::vector<float> whole_;
  std::vector<float> worker_error_;
  std::vector<float> server_error_;
  ErrorFeedback feedback_;
  SharedBuffer<float> shared_;
  const std::vector<std::size_t> uneven_ = {100'000, 77};
  const std::vector<std::size_t> even_ = {1000, 1000};
};

// A queue may still reach a new maximum length when the ranks happen to drift apart, which is why
// the test allows further tens of thousands of calls. An allocation per call shows in every round.
TEST_P(Memory, of_a_warm_data_path_is_not_allocated_in_ten_thousand_calls) {
  std::vector<std::size_t> made;
  std::size_t left = 0;
  expect_success(2, [&](Communicator& comm) {
    Calls calls(comm);
    // A group remembers its last 1024 calls.
    for (int i = 0; i < 200; ++i) calls.make_all();
    comm.barrier();
    const std::size_t live_before = live_allocations();
    for (int round = 0; round < 5; ++round) {
      comm.barrier();
      const std::size_t before = allocation_count();
      comm.barrier();
      for (int i = 0; i < 10'000 / Calls::kCalls; ++i) calls.make_all();
      comm.barrier();
      const std::size_t in_round = allocation_count() - before;
      comm.barrier();
      if (comm.rank() == 0) made.push_back(in_round);
      if (comm.rank() == 0) left = live_allocations() - live_before;
      comm.barrier();
      std::vector<std::int64_t> decided{static_cast<std::int64_t>(in_round)};
      comm.broadcast(decided);
      if (decided[0] == 0) break;
    }
  });
  EXPECT_EQ(made.back(), 0u) << "allocations by round: " << ::testing::PrintToString(made);
  // Queues and pools keep the memory of their maximum length. A leak in one of a hundred calls would be 100 or more.
  EXPECT_LT(left, 100u);
}

}  // namespace
}  // namespace qccl::testing
