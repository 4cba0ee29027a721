// A program that knows NCCL alone, for tests that look at it from outside. Its ranks, 0 and 1, are threads, and a gate
// needs a stream of the fake driver's.
//
//   nccl_program leave HOW    ends in that way while the streams of both ranks wait for messages that do not come
//   nccl_program wait         rank 1 makes its all_reduce once standard input ends
//   nccl_program join         communicators one after another, and two at the same time
//
// Exits with 0; with 1 if a function of NCCL's failed, and says so.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "nccl.h"
#include "support/fake_cuda/fake_cuda.h"

namespace {

namespace fake = qccl::device::fake;

constexpr int kRanks = 2;
constexpr std::size_t kCount = 1000;

void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
  std::exit(1);
}

void say(const char* words) {
  std::puts(words);
  std::fflush(stdout);
}

std::vector<ncclComm_t> join() {
  std::vector<ncclComm_t> comms(kRanks);
  const int devices[kRanks] = {0, 0};
  check(ncclCommInitAll(comms.data(), kRanks, devices));
  return comms;
}

void on_each(const std::function<void(int rank)>& body) {
  std::thread other(body, 1);
  body(0);
  other.join();
}

void add(ncclComm_t comm) {
  float values[kCount] = {};
  check(ncclAllReduce(values, values, kCount, ncclFloat32, ncclSum, comm, nullptr));
}

void destroy(const std::vector<ncclComm_t>& comms) {
  on_each([&](int rank) { check(ncclCommDestroy(comms[static_cast<std::size_t>(rank)])); });
}

std::vector<ncclComm_t>& left() {
  static auto* const only = new std::vector<ncclComm_t>;
  return *only;
}

int leave(const std::string& how) {
  left() = join();
  for (int rank = 0; rank < kRanks; ++rank) {
    CUstream_st* const stream = fake::make_stream(0);
    void* const memory = fake::allocate(fake::Kind::device, kCount, 0);
    const ncclComm_t comm = left()[static_cast<std::size_t>(rank)];
    check(ncclRecv(memory, kCount, ncclUint8, 1 - rank, comm, stream));
    fake::enqueue(stream, [] { say("a stream went on"); });
  }
  say("the streams wait");
  if (how == "exit") std::exit(0);
  if (how == "exit of a thread") std::thread([] { std::exit(0); }).join();
  if (how == "_exit") ::_exit(0);
  if (how == "quick_exit") std::quick_exit(0);
  if (how == "abort") std::abort();
  const bool destroys = how == "destroy at exit";
  if (destroys || how == "abort at exit") {
    static const bool kDestroys = destroys;
    std::atexit([] { on_each([](int rank) { check((kDestroys ? ncclCommDestroy : ncclCommAbort)(left()[rank])); }); });
  }
  return 0;
}

int wait() {
  const std::vector<ncclComm_t> comms = join();
  on_each([&](int rank) {
    if (rank == 1) {
      say("joined");
      while (std::getchar() != EOF) {
      }
    }
    add(comms[static_cast<std::size_t>(rank)]);
  });
  destroy(comms);
  return 0;
}

int join_often() {
  const std::vector<ncclComm_t> first = join();
  on_each([&](int rank) { add(first[static_cast<std::size_t>(rank)]); });
  destroy(first);
  const std::vector<ncclComm_t> second = join(), third = join();
  for (const auto& comms : {second, third, second}) {
    on_each([&](int rank) { add(comms[static_cast<std::size_t>(rank)]); });
  }
  destroy(third);
  destroy(second);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "leave" && argc == 3) return leave(argv[2]);
  if (command == "wait") return wait();
  if (command == "join") return join_often();
  std::fprintf(stderr, "nccl_program leave HOW | wait | join\n");
  return 2;
}
