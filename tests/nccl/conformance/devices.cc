// devices CASE: four ranks of one process with buffers in the memory of two devices, over the fake driver, or of those
// that the machine has. Exit 0 if every check held and the driver saw no misuse.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/fake_cuda/fake_cuda.h"
extern "C" {
#include "ranks.h"
}

namespace {

namespace fake = qccl::device::fake;

// The second half's is the last one: a machine with a GPU may have no other.
int device_of(int rank) { return rank < kMostRanks / 2 ? 0 : std::min(1, fake::device_count() - 1); }

// What a rank has: a stream, and two buffers on its device.
class Rank {
 public:
  Rank(int rank, std::size_t elements)
      : device_(device_of(rank)),
        elements_(elements),
        stream_(fake::make_stream(device_)),
        in_(static_cast<float*>(fake::allocate(fake::Kind::device, bytes(), device_))),
        out_(static_cast<float*>(fake::allocate(fake::Kind::device, bytes(), device_))) {
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) values[i] = value(rank, i);
    fake::write(stream_, in_, values.data(), bytes());  // some time from now
  }
  ~Rank() {
    fake::free(in_);
    fake::free(out_);
    fake::destroy(stream_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  static float value(int rank, std::size_t index) {
    return static_cast<float>(rank + 1) * static_cast<float>(1 + index % 7);
  }
  float* in() const { return in_; }
  float* out() const { return out_; }
  CUstream_st* stream() const { return stream_; }
  int device() const { return device_; }
  std::vector<float> read(const float* memory) const {
    std::vector<float> values(elements_);
    fake::read(stream_, memory, values.data(), bytes());
    return values;
  }

 private:
  std::size_t bytes() const { return elements_ * sizeof(float); }

  const int device_;
  const std::size_t elements_;
  CUstream_st* const stream_;
  float* const in_;
  float* const out_;
};

struct Job {
  explicit Job(std::size_t elements) {
    int devices[kMostRanks];
    for (int rank = 0; rank < kMostRanks; ++rank) devices[rank] = device_of(rank);
    OK(ncclCommInitAll(comms, kMostRanks, devices));
    for (int rank = 0; rank < kMostRanks; ++rank) ranks.push_back(std::make_unique<Rank>(rank, elements));
  }
  ~Job() {
    ranks.clear();
    for (ncclComm_t each : comms) OK(ncclCommDestroy(each));
  }
  void grouped(const std::function<ncclResult_t(const Rank&, ncclComm_t, int)>& call) {
    OK(ncclGroupStart());
    for (int rank = 0; rank < kMostRanks; ++rank) OK(call(*ranks[static_cast<std::size_t>(rank)], comms[rank], rank));
    OK(ncclGroupEnd());
  }
  void expect(const std::function<float(int, std::size_t)>& value, std::size_t count) {
    for (int rank = 0; rank < kMostRanks; ++rank) {
      const Rank& own = *ranks[static_cast<std::size_t>(rank)];
      const std::vector<float> out = own.read(own.out());
      for (std::size_t i = 0; i < count; ++i) CHECK(out[i] == value(rank, i));
    }
  }

  ncclComm_t comms[kMostRanks];
  std::vector<std::unique_ptr<Rank>> ranks;
};

float sum(std::size_t index) { return 10.0F * static_cast<float>(1 + index % 7); }

// Below and above the size from which a device computes.
void collectives() {
  for (const std::size_t count : {std::size_t{5}, std::size_t{25000}}) {
    Job job(kMostRanks * count);
    int device = -1;
    OK(ncclCommCuDevice(job.comms[2], &device));
    CHECK(device == device_of(2));
    job.grouped([&](const Rank& own, ncclComm_t comm, int) {
      return ncclAllReduce(own.in(), own.out(), count, ncclFloat32, ncclSum, comm, own.stream());
    });
    job.expect([](int, std::size_t i) { return sum(i); }, count);
    job.grouped([&](const Rank& own, ncclComm_t comm, int) {
      return ncclBroadcast(own.in(), own.out(), count, ncclFloat32, 2, comm, own.stream());
    });
    job.expect([](int, std::size_t i) { return Rank::value(2, i); }, count);
    job.grouped([&](const Rank& own, ncclComm_t comm, int) {
      return ncclAllGather(own.in(), own.out(), count, ncclFloat32, comm, own.stream());
    });
    job.expect([&](int, std::size_t i) { return Rank::value(static_cast<int>(i / count), i % count); },
               kMostRanks * count);
    job.grouped([&](const Rank& own, ncclComm_t comm, int) {
      return ncclReduceScatter(own.in(), own.out(), count, ncclFloat32, ncclAvg, comm, own.stream());
    });
    job.expect([&](int rank, std::size_t i) { return sum(static_cast<std::size_t>(rank) * count + i) / 4; }, count);
    job.grouped([&](const Rank& own, ncclComm_t comm, int) {
      return ncclAlltoAll(own.in(), own.out(), count, ncclFloat32, comm, own.stream());
    });
    job.expect(
        [&](int rank, std::size_t i) {
          return Rank::value(static_cast<int>(i / count), static_cast<std::size_t>(rank) * count + i % count);
        },
        kMostRanks * count);
  }
}

void messages() {
  constexpr std::size_t kCount = 30000;
  Job job(kCount);
  job.grouped([&](const Rank& own, ncclComm_t comm, int rank) {
    OK(ncclRecv(own.out(), kCount, ncclFloat32, (rank + 3) % kMostRanks, comm, own.stream()));
    return ncclSend(own.in(), kCount, ncclFloat32, (rank + 1) % kMostRanks, comm, own.stream());
  });
  job.expect([](int rank, std::size_t i) { return Rank::value((rank + 3) % kMostRanks, i); }, kCount);
}

// The scalar is written by the stream before the call, as torch does.
void scalars() {
  Job job(100);
  ncclRedOp_t operators[kMostRanks];
  std::vector<void*> scalars;
  for (int rank = 0; rank < kMostRanks; ++rank) {
    const Rank& own = *job.ranks[static_cast<std::size_t>(rank)];
    scalars.push_back(fake::allocate(fake::Kind::device, sizeof(float), own.device()));
    OK(ncclRedOpCreatePreMulSum(&operators[rank], scalars.back(), ncclFloat32, ncclScalarDevice, job.comms[rank]));
    const float factor = 0.25F;
    fake::write(own.stream(), scalars.back(), &factor, sizeof(factor));
  }
  job.grouped([&](const Rank& own, ncclComm_t comm, int rank) {
    return ncclAllReduce(own.in(), own.out(), 100, ncclFloat32, operators[rank], comm, own.stream());
  });
  job.expect([](int, std::size_t i) { return sum(i) / 4; }, 100);
  for (int rank = 0; rank < kMostRanks; ++rank) OK(ncclRedOpDestroy(operators[rank], job.comms[rank]));
  for (void* each : scalars) fake::free(each);
}

// Ranks that are threads: operations of one stream, each with the result of the one before.
void in_order() {
  constexpr std::size_t kCount = 25000;
  Job job(kCount);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kMostRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const Rank& own = *job.ranks[static_cast<std::size_t>(rank)];
      OK(ncclAllReduce(own.in(), own.out(), kCount, ncclFloat32, ncclMax, job.comms[rank], own.stream()));
      for (int i = 0; i < 3; ++i) {
        OK(ncclAllReduce(own.out(), own.out(), kCount, ncclFloat32, ncclSum, job.comms[rank], own.stream()));
      }
    });
  }
  for (std::thread& each : threads) each.join();
  job.expect([](int, std::size_t i) { return 64 * Rank::value(3, i); }, kCount);
}

// Each stream of a group waits for the work of the others before it, and sees the results of all its calls.
void several_streams() {
  constexpr std::size_t kCount = 100;
  Job job(kCount);
  std::vector<CUstream_st*> others;
  for (int rank = 0; rank < kMostRanks; ++rank) others.push_back(fake::make_stream(device_of(rank)));
  job.grouped([&](const Rank& own, ncclComm_t comm, int) {  // opens the devices
    return ncclAllReduce(own.in(), own.out(), kCount, ncclFloat32, ncclSum, comm, own.stream());
  });
  for (const auto& own : job.ranks) {  // the input changes after a long kernel
    const std::vector<float> values(kCount, static_cast<float>(100 + own->device()));
    fake::enqueue(own->stream(), [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
    fake::write(own->stream(), own->in(), values.data(), kCount * sizeof(float));
  }
  job.grouped([&](const Rank& own, ncclComm_t comm, int rank) {
    OK(ncclSend(own.in(), kCount, ncclFloat32, (rank + 1) % kMostRanks, comm, others[static_cast<std::size_t>(rank)]));
    return ncclRecv(own.out(), kCount, ncclFloat32, (rank + 3) % kMostRanks, comm, own.stream());
  });
  for (int rank = 0; rank < kMostRanks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    std::vector<float> out(kCount);
    fake::read(others[at], job.ranks[at]->out(), out.data(), kCount * sizeof(float));
    const auto sent = static_cast<float>(100 + device_of((rank + 3) % kMostRanks));
    for (const float each : out) CHECK(each == sent);
  }
  for (CUstream_st* each : others) fake::destroy(each);
}

void refused() {
  Job job(16);
  const Rank& own = *job.ranks[0];
  fake::capture(own.stream(), true);
  IS(ncclInvalidUsage, ncclAllReduce(own.in(), own.out(), 16, ncclFloat32, ncclSum, job.comms[0], own.stream()));
  CHECK(std::strstr(ncclGetLastError(nullptr), "graph") != nullptr);
  fake::capture(own.stream(), false);
  void* const managed = fake::allocate(fake::Kind::managed, 64);
  IS(ncclInvalidArgument, ncclAllReduce(managed, managed, 16, ncclFloat32, ncclSum, job.comms[0], own.stream()));
  fake::free(managed);
  job.grouped([&](const Rank& each, ncclComm_t comm, int) {
    return ncclAllReduce(each.in(), each.out(), 16, ncclFloat32, ncclSum, comm, each.stream());
  });
  job.expect([](int, std::size_t i) { return sum(i); }, 16);
}

// Pinned host memory in calls on a stream. Beside device memory in one call it is refused, unlike by NCCL.
void pinned() {
  constexpr std::size_t kCount = 16;
  Job job(kCount);
  auto* const memory = static_cast<float*>(fake::allocate(fake::Kind::pinned, kMostRanks * kCount * sizeof(float)));
  for (std::size_t i = 0; i < kMostRanks * kCount; ++i) {
    memory[i] = Rank::value(static_cast<int>(i / kCount), i % kCount);
  }
  job.grouped([&](const Rank& own, ncclComm_t comm, int rank) {
    float* const part = memory + kCount * static_cast<std::size_t>(rank);
    return ncclAllReduce(part, part, kCount, ncclFloat32, ncclSum, comm, own.stream());
  });
  for (std::size_t i = 0; i < kMostRanks * kCount; ++i) CHECK(memory[i] == sum(i % kCount));
  const Rank& own = *job.ranks[0];
  IS(ncclInvalidArgument, ncclAllReduce(own.in(), memory, kCount, ncclFloat32, ncclSum, job.comms[0], own.stream()));
  CHECK(std::strstr(ncclGetLastError(nullptr), "pinned") != nullptr);
  fake::free(memory);
}

void memory() {
  void* own = nullptr;
  OK(ncclMemAlloc(&own, 1000));
  CHECK(own != nullptr);
  OK(ncclMemFree(own));
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)()> cases{
      {"collectives", collectives},         {"messages", messages}, {"scalars", scalars}, {"in_order", in_order},
      {"several_streams", several_streams}, {"refused", refused},   {"pinned", pinned},   {"memory", memory}};
  const auto found = cases.find(argc == 2 ? argv[1] : "");
  if (found == cases.end()) {
    std::fprintf(stderr, "devices CASE; the cases are:");
    for (const auto& [name, run] : cases) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  fake::set_delays(1, std::chrono::microseconds(500));
  found->second();
  const auto misuses = fake::take_misuses();
  for (const std::string& each : misuses) std::fprintf(stderr, "misuse: %s\n", each.c_str());
  return misuses.empty() ? 0 : 1;
}
