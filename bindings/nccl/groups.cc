#include "groups.h"

#include <algorithm>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "buffers.h"
#include "communicator.h"
#include "results.h"

namespace qccl::nccl {
namespace {

using Streams = std::vector<DeviceStream>;

// Makes the streams wait for the operation, which is on one of them; where streams don't, and for host memory, this
// thread waits. A failure is the communicator's as well, also one that comes later.
void end(const Work& work, const Operation& operation, const Streams& streams) {
  try {
    if (!operation.stream) return work.wait();
    work.notify([work, comm = std::weak_ptr(operation.comm)] {
      const auto alive = comm.lock();
      if (const auto failure = work.error(); failure && alive != nullptr) alive->fail(*failure);
    });
    for (const DeviceStream& each : streams) work.block(each);
  } catch (const Error& error) {
    operation.comm->fail(error.info());
    throw;
  }
}

// The n-th operations of all communicators before any (n+1)-th one: a communicator takes a limited number of them until
// the others have theirs. Each keeps its own order.
void take_turns(std::vector<Operation>& operations) {
  std::map<const ncclComm*, std::size_t> counts;
  std::vector<std::pair<std::size_t, Operation>> numbered;
  numbered.reserve(operations.size());
  for (Operation& each : operations) {
    const std::size_t number = counts[each.comm.get()]++;
    numbered.emplace_back(number, std::move(each));
  }
  std::ranges::stable_sort(numbered, {}, &std::pair<std::size_t, Operation>::first);
  std::ranges::transform(numbered, operations.begin(), [](auto& each) { return std::move(each.second); });
}

// Those of each communicator's operations.
std::map<ncclComm*, Streams> streams_of(const std::vector<Operation>& operations) {
  std::map<ncclComm*, Streams> streams;
  for (const Operation& each : operations) {
    Streams& own = streams[each.comm.get()];
    if (!each.stream) continue;
    const auto is_same = [&](const DeviceStream& other) {
      return other.device == each.stream->device && other.handle == each.stream->handle;
    };
    if (std::ranges::none_of(own, is_same)) own.push_back(*each.stream);
  }
  return streams;
}

// Ends once the stream has come to where it is now: an empty message to this rank itself.
Work mark(Communicator& group, const DeviceStream& stream) {
  const int tag = own_tag();
  group.send_async(nullptr, 0, DataType::uint8, group.rank(), {.tag = tag, .stream = stream});
  return group.recv_async(nullptr, 0, DataType::uint8, group.rank(), {.tag = tag});
}

// Each stream waits for the work that the others have now.
void join(Communicator group, const Streams& streams) {
  std::vector<Work> marked;
  for (const DeviceStream& each : streams) marked.push_back(mark(group, each));
  for (std::size_t i = 0; i < streams.size(); ++i) {
    for (std::size_t other = 0; other < streams.size(); ++other) {
      if (other != i) marked[i].block(streams[other]);
    }
  }
}

// Ends every posted operation, even after a failure: when the group has ended, the caller may reuse host memory. No
// stream waits for one before all have been posted, as operations behind a gate would wait for those before it. All
// operations of a communicator are behind the work of all their streams, and all these streams see all results.
void run_all(std::vector<Operation> operations) {
  take_turns(operations);
  std::vector<Work> posted;
  std::exception_ptr failure;
  const auto keep_first = [&](auto&& call) {
    try {
      call();
    } catch (const std::exception&) {
      if (failure == nullptr) failure = std::current_exception();
    }
  };
  const auto streams = streams_of(operations);
  for (const auto& [comm, own] : streams) {
    if (own.size() > 1) keep_first([&] { join(comm->group(), own); });
  }
  for (const Operation& each : operations) {
    if (failure != nullptr) break;
    keep_first([&] {
      Communicator group = each.comm->group();
      posted.push_back(each.post(group, false));
    });
  }
  for (std::size_t i = 0; i < posted.size(); ++i) {
    keep_first([&] { end(posted[i], operations[i], streams.at(operations[i].comm.get())); });
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

void discard(const Making& making) {
  if (making.handle != nullptr) *making.handle = nullptr;
  forget(making.comm.get());
}

void make_one(const Making& making) {
  try {
    making.comm->make(making);
  } catch (...) {
    discard(making);
    throw;
  }
}

void end_group(Thread& thread) {
  const ncclResult_t failure = std::exchange(thread.failure, ncclSuccess);
  std::vector<Operation> operations = std::exchange(thread.operations, {});
  const std::vector<Making> makings = std::exchange(thread.makings, {});
  if (failure != ncclSuccess) {
    for (const Making& each : makings) discard(each);
    return;
  }
  if (!makings.empty() && !operations.empty()) {
    for (const Making& each : makings) discard(each);
    refuse_usage("a group makes communicators or has operations of them, not both");
  }
  make_all(makings);
  run_all(std::move(operations));
}

}  // namespace

void submit(Operation operation) {
  Thread& thread = this_thread();
  if (thread.depth > 0) return thread.operations.push_back(std::move(operation));
  Communicator group = operation.comm->group();
  end(operation.post(group, !operation.stream), operation, streams_of({operation}).at(operation.comm.get()));
}

ncclResult_t in_progress() {
  Thread& thread = this_thread();
  if (thread.depth == 0) return ncclInProgress;
  thread.is_in_progress = true;
  return ncclSuccess;
}

ncclResult_t submit(Making making, bool is_blocking) {
  Thread& thread = this_thread();
  if (!is_blocking) {
    try {
      making.comm->make_later(making);
    } catch (...) {
      discard(making);
      throw;
    }
    return in_progress();
  }
  if (thread.depth > 0) {
    thread.makings.push_back(std::move(making));
  } else {
    make_one(making);
  }
  return ncclSuccess;
}

void make_all(const std::vector<Making>& makings) {
  std::vector<std::exception_ptr> failures(makings.size());
  std::vector<std::jthread> threads;
  try {
    threads.reserve(makings.size());
    for (std::size_t i = 0; i < makings.size(); ++i) {
      threads.emplace_back([&making = makings[i], &failure = failures[i]] {
        try {
          make_one(making);
        } catch (...) {
          failure = std::current_exception();
        }
      });
    }
  } catch (...) {
    // The threads that run would wait for the ranks that have none.
    for (const Making& each : makings) each.comm->end("another communicator of the group got no thread");
    threads.clear();
    for (const Making& each : makings) discard(each);
    throw;
  }
  threads.clear();
  for (const std::exception_ptr& each : failures) {
    if (each != nullptr) std::rethrow_exception(each);
  }
}

void drop_group() {
  Thread& thread = this_thread();
  if (thread.depth > 0 && --thread.depth > 0) return;
  for (const Making& each : thread.makings) discard(each);
  thread.makings.clear();
  thread.operations.clear();
  thread.failure = ncclSuccess;
  thread.is_in_progress = false;
}

}  // namespace qccl::nccl

using namespace qccl::nccl;

ncclResult_t ncclGroupStart() {
  ++this_thread().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return guarded([] {
    Thread& thread = this_thread();
    if (thread.depth == 0) refuse_usage("ncclGroupEnd() without ncclGroupStart() in this thread");
    if (--thread.depth > 0) return ncclSuccess;
    const ncclResult_t failure = thread.failure;
    const ncclResult_t success = std::exchange(thread.is_in_progress, false) ? ncclInProgress : ncclSuccess;
    end_group(thread);
    return failure == ncclSuccess ? success : failure;
  });
}
