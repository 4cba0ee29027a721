// The measurement of bench/predicted/compare: single calls of float32 from rest, as `qccl plan simulate` predicts them.
//
//   predicted_qccl REST_US COLLECTIVE/ALGORITHM/CODEC/BYTES/SAMPLES ...
//
// BYTES is a rank's input; if ranks have pieces, all pieces together. Before each sample the ranks write their inputs,
// synchronize, and sleep until REST_US later, when the links are idle and their bursts have refilled. Then all make the
// call at the same time, by the clock that the namespaces of a machine share. A sample lasts from then to the last
// rank's end; the first one is warm-up and not reported. Rank 0 prints a line of JSON for each case: each sample's
// seconds, and how many ticks of this machine's cores its hypervisor gave to others meanwhile. A wrong result ends the
// program.
#include <qccl/qccl.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using qccl::Algorithm;
using qccl::Collective;

struct Case {
  std::string name;
  Collective collective{};
  std::size_t bytes = 0;
  std::size_t samples = 0;
  qccl::CallOptions options{};
};

template <class T, std::size_t count>
T named(const T (&all)[count], const std::string& word) {
  for (const T each : all) {
    if (to_string(each) == word) return each;
  }
  throw std::invalid_argument("there is no " + word);
}

constexpr Collective kCollectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                       Collective::broadcast, Collective::all_to_all};

Case parse(const std::string& text) {
  std::vector<std::string> words{""};
  for (const char c : text) {
    if (c == '/') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  if (words.size() != 5) throw std::invalid_argument(text + " is no COLLECTIVE/ALGORITHM/CODEC/BYTES/SAMPLES");
  Case what{text, named(kCollectives, words[0]), std::stoull(words[3]), std::stoull(words[4])};
  const auto algorithm = qccl::algorithm_named(words[1]);
  if (!algorithm) throw std::invalid_argument("there is no " + words[1]);
  what.options.algorithm = *algorithm;
  what.options.compression = qccl::Compression::parse(words[2]);
  return what;
}

struct Sample {
  double seconds = 0;
  long stolen_ticks = 0;
};

// "steal" of all processors in /proc/stat.
long stolen_ticks() {
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;
  long ticks = 0;
  for (int column = 0; column < 8; ++column) file >> ticks;
  return ticks;
}

class Measurement {
 public:
  Measurement(qccl::Communicator& world, const Case& what, std::chrono::microseconds rest)
      : world_(world), what_(what), rest_(rest) {
    const auto ranks = static_cast<std::size_t>(world.size());
    const bool has_pieces = qccl::has_pieces(what.collective);
    count_ = what.bytes / sizeof(float) / (has_pieces ? ranks : 1);
    const std::size_t all = has_pieces ? count_ * ranks : count_;
    input_.resize(what.collective == Collective::all_gather ? count_ : all);
    output_.resize(what.collective == Collective::reduce_scatter ? count_ : all);
  }

  // The samples, with the slowest rank's seconds.
  std::vector<Sample> run() {
    time_once();
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < what_.samples; ++i) samples.push_back(time_once());
    check();
    std::vector<double> seconds;
    for (const Sample& sample : samples) seconds.push_back(sample.seconds);
    world_.all_reduce(seconds.data(), seconds.data(), seconds.size(), qccl::DataType::float64,
                      {.op = qccl::ReduceOp::max, .compression = qccl::none()});
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i].seconds = seconds[i];
    return samples;
  }

 private:
  Sample time_once() {
    std::fill(input_.begin(), input_.end(), static_cast<float>(world_.rank() + 1));
    std::fill(output_.begin(), output_.end(), 0.0f);
    if (what_.collective == Collective::broadcast && world_.rank() == 0) output_ = input_;
    world_.barrier();
    const long stolen = stolen_ticks();
    const Clock::time_point start = common_start();
    std::this_thread::sleep_until(start);
    call();
    const std::chrono::duration<double> seconds = Clock::now() - start;
    return {seconds.count(), stolen_ticks() - stolen};
  }

  Clock::time_point common_start() {
    std::int64_t start = (Clock::now() + rest_).time_since_epoch().count();
    world_.broadcast(&start, 1, qccl::DataType::int64);
    return Clock::time_point(Clock::duration(start));
  }

  void call() {
    world_.run({what_.collective, input_.data(), output_.data(), count_, qccl::DataType::float32, what_.options});
  }

  // Rank r contributes r + 1 in every element. Codecs reproduce constant data exactly.
  float expected(std::size_t element) const {
    switch (what_.collective) {
      case Collective::all_reduce:
      case Collective::reduce_scatter: return static_cast<float>(world_.size() * (world_.size() + 1) / 2);
      case Collective::broadcast: return 1;
      default: return static_cast<float>(element / count_ + 1);
    }
  }

  void check() const {
    for (std::size_t i = 0; i < output_.size(); ++i) {
      if (output_[i] == expected(i)) continue;
      std::fprintf(stderr, "%s: element %zu is %g, not %g\n", what_.name.c_str(), i, static_cast<double>(output_[i]),
                   static_cast<double>(expected(i)));
      std::exit(3);
    }
  }

  qccl::Communicator& world_;
  const Case& what_;
  const std::chrono::microseconds rest_;
  std::size_t count_ = 0;
  std::vector<float> input_;
  std::vector<float> output_;
};

// Makes the calls that let the connections' windows and buffers grow.
void warm_up(qccl::Communicator& world) {
  constexpr int kCalls = 20;
  const std::size_t count = 1 << 18;
  std::vector<float> input(count * static_cast<std::size_t>(world.size()));
  std::vector<float> output(input.size());
  for (int i = 0; i < kCalls; ++i) world.all_to_all(input.data(), output.data(), count, qccl::DataType::float32);
}

void print(const Case& what, const std::vector<Sample>& samples) {
  std::printf("ROW {\"case\": \"%s\", \"samples\": [", what.name.c_str());
  const char* between = "";
  for (const Sample& sample : samples) {
    std::printf("%s[%.9f, %ld]", between, sample.seconds, sample.stolen_ticks);
    between = ", ";
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw std::invalid_argument("REST_US and cases are missing");
    const std::chrono::microseconds rest(std::stoll(argv[1]));
    std::vector<Case> cases;
    for (int i = 2; i < argc; ++i) cases.push_back(parse(argv[i]));
    ::prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds, of sleep_until()
    qccl::Communicator world = qccl::init();
    warm_up(world);
    for (const Case& what : cases) {
      const std::vector<Sample> samples = Measurement(world, what, rest).run();
      if (world.rank() == 0) print(what, samples);
    }
    world.close();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "predicted_qccl: %s\n", error.what());
    return 1;
  }
}
