// One bit per element: compares compressed_allreduce() with a simulation by ordinary all_reduces, like DeepSpeed's own
// test (tests/onebit/test_compressed_backend.py): a = rand - 0.5 + 0.01 rank, errors zero, largest difference 1e-6.
//
//   build/qccl run -n 2 -- build/examples/onebit                  300 * 2^20 floats, some 3 GB per rank
//   build/qccl run -n 4 -- build/examples/onebit --count 1000000
//
// The exit code is 1 if result or errors differ by more. A sum so close to zero that its sign depends on rounding is
// counted, not compared.
#include <qccl/qccl.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr double kLimit = 1e-6;
constexpr std::size_t kPiece = 4 << 20;  // floats that the simulation holds at a time

// Element i of rank `rank`'s input: a hash of i (splitmix64's mixer), so that no rank has to store it.
float input_at(int rank, std::size_t i, std::size_t count) {
  if (i >= count) return 0;
  std::uint64_t x = i * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(rank + 1) * 0xD1B54A32D192ED03u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return static_cast<float>(x >> 40) * 0x1p-24f - 0.5f + 0.01f * static_cast<float>(rank);
}

float sign_of(float x) { return x >= 0 ? 1.0f : -1.0f; }

float scale_of(double squares, std::size_t n) {
  return static_cast<float>(std::sqrt(squares / static_cast<double>(n)));
}

class Comparison {
 public:
  Comparison(qccl::Communicator& comm, std::size_t count)
      : comm_(comm),
        count_(count),
        sizes_(qccl::onebit_sizes(count, comm.size())),
        buffer_(count),
        worker_error_(sizes_.worker_error),
        server_error_(sizes_.server_error) {}

  // Returns true if no element differs by more than the limit, on any rank.
  bool run() {
    for (std::size_t i = 0; i < count_; ++i) buffer_[i] = input_at(comm_.rank(), i, count_);
    comm_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    comm_.compressed_allreduce(buffer_, worker_error_, server_error_);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    compare();
    return report();
  }

 private:
  void compare() {
    double squares = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const double x = input_at(comm_.rank(), i, count_);
      squares += x * x;
    }
    const float scale = scale_of(squares, sizes_.worker_error);
    for (std::size_t i = 0; i < worker_error_.size(); ++i) {
      const float x = input_at(comm_.rank(), i, count_);
      note(worker_error_[i], x - scale * sign_of(x));
    }
    for (int owner = 0; owner < comm_.size(); ++owner) compare_chunk(owner, scale);
  }

  void compare_chunk(int owner, float scale) {
    double squares = 0;
    for_each_mean(owner, scale, [&](std::size_t, float mean) { squares += double{mean} * double{mean}; });
    const float server_scale = scale_of(squares, sizes_.server_error);
    for_each_mean(owner, scale, [&](std::size_t i, float mean) {
      if (std::abs(mean) <= kLimit) {
        ++undecided_;
        return;
      }
      const float result = server_scale * sign_of(mean);
      const std::size_t at = static_cast<std::size_t>(owner) * sizes_.server_error + i;
      if (at < count_) note(buffer_[at], result);
      if (owner == comm_.rank()) note(server_error_[i], mean - result);
    });
  }

  // Calls use(i, mean of all ranks' scale times sign) for the elements i of a chunk, piece by piece.
  template <class Use>
  void for_each_mean(int owner, float scale, Use use) {
    const std::size_t chunk = static_cast<std::size_t>(owner) * sizes_.server_error;
    for (std::size_t begin = 0; begin < sizes_.server_error; begin += kPiece) {
      piece_.resize(std::min(kPiece, sizes_.server_error - begin));
      for (std::size_t i = 0; i < piece_.size(); ++i) {
        piece_[i] = scale * sign_of(input_at(comm_.rank(), chunk + begin + i, count_));
      }
      comm_.all_reduce(piece_, {.op = qccl::ReduceOp::avg});
      for (std::size_t i = 0; i < piece_.size(); ++i) use(begin + i, piece_[i]);
    }
  }

  void note(float got, float expected) {
    const double difference = std::abs(double{got} - double{expected});
    // NaN counts as a difference, too.
    if (!(difference <= largest_)) largest_ = std::isnan(difference) ? HUGE_VAL : difference;
  }

  bool report() {
    std::vector<double> worst{largest_, seconds_, static_cast<double>(undecided_)};
    comm_.all_reduce(worst, {.op = qccl::ReduceOp::max});
    const bool passed = worst[0] <= kLimit;
    if (comm_.rank() == 0) {
      std::printf(
          "%zu floats, %d ranks, %.1f ms: largest difference from the simulation %.2g (at most %g), "
          "%.0f sums within %g of zero not compared: %s\n",
          count_, comm_.size(), worst[1] * 1e3, worst[0], kLimit, worst[2], kLimit, passed ? "passed" : "FAILED");
    }
    return passed;
  }

  qccl::Communicator& comm_;
  const std::size_t count_;
  const qccl::OnebitSizes sizes_;
  std::vector<float> buffer_;
  std::vector<float> worker_error_;
  std::vector<float> server_error_;
  std::vector<float> piece_;
  double largest_ = 0;
  double seconds_ = 0;
  std::size_t undecided_ = 0;
};

std::size_t count_of(int argc, char** argv) {
  if (argc == 1) return std::size_t{300} << 20;
  std::size_t count = 0;
  if (argc == 3 && std::strcmp(argv[1], "--count") == 0) {
    const char* end = argv[2] + std::strlen(argv[2]);
    if (std::from_chars(argv[2], end, count).ptr == end && count > 0) return count;
  }
  throw std::invalid_argument("usage: onebit [--count FLOATS]");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::size_t count = count_of(argc, argv);
    qccl::Communicator comm = qccl::init();
    const bool passed = Comparison(comm, count).run();
    std::fflush(stdout);
    comm.barrier();  // a launcher ends all ranks when one exits with 1, so none exits before rank 0 has printed
    comm.close();
    return passed ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onebit: %s\n", error.what());
    return 2;
  }
}
