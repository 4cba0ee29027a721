#include "memory_inside.h"

#include <cstring>
#include <stdexcept>

namespace qccl::testing {
namespace {

template <class T>
void add(T* sum, const T* values, std::size_t count, ReduceOp op) {
  for (std::size_t i = 0; i < count; ++i) {
    if (op == ReduceOp::sum) sum[i] = static_cast<T>(sum[i] + values[i]);
    if (op == ReduceOp::prod) sum[i] = static_cast<T>(sum[i] * values[i]);
    if (op == ReduceOp::min) sum[i] = std::min(sum[i], values[i]);
    if (op == ReduceOp::max) sum[i] = std::max(sum[i], values[i]);
  }
}

void add(DataType type, void* sum, const void* values, std::size_t count, ReduceOp op) {
  const auto as = [&]<class T>(T) { add(static_cast<T*>(sum), static_cast<const T*>(values), count, op); };
  if (type == DataType::float32) return as(float{});
  if (type == DataType::float64) return as(double{});
  if (type == DataType::int32) return as(std::int32_t{});
  if (type == DataType::int64) return as(std::int64_t{});
  throw std::runtime_error("MemoryInside does not add this type");
}

const std::byte* part(const void* buffer, std::size_t index, const InsideCall& call) {
  return static_cast<const std::byte*>(buffer) + index * call.count * element_bytes(call.type);
}

class Group final : public InsideGroup {
 public:
  Group(std::shared_ptr<MemoryInside::Shared> shared, std::shared_ptr<MeetingRoom> room, const InsideHost& host)
      : shared_(std::move(shared)), room_(std::move(room)), rank_(static_cast<std::size_t>(host.rank)) {}

  // Others may still read what an output in place of an input overwrites.
  void reduce_scatter(const InsideCall& call) override {
    std::vector<std::byte> sum(call.count * element_bytes(call.type));
    meet(call, [&](const std::vector<InsideCall>& calls) {
      std::memcpy(sum.data(), part(calls.front().input, rank_, call), sum.size());
      for (std::size_t rank = 1; rank < calls.size(); ++rank) {
        add(call.type, sum.data(), part(calls[rank].input, rank_, call), call.count, call.op);
      }
    });
    std::memcpy(call.output, sum.data(), sum.size());
  }
  void all_gather(const InsideCall& call) override {
    meet(call, [&](const std::vector<InsideCall>& calls) {
      for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        copy(const_cast<std::byte*>(part(call.output, rank, call)), part(calls[rank].input, 0, call), call);
      }
    });
  }
  void broadcast(const InsideCall& call) override {
    meet(call, [&](const std::vector<InsideCall>& calls) {
      copy(static_cast<std::byte*>(call.output), part(calls[static_cast<std::size_t>(call.root)].output, 0, call),
           call);
    });
  }
  void all_to_all(const InsideCall& call) override {
    meet(call, [&](const std::vector<InsideCall>& calls) {
      for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        copy(const_cast<std::byte*>(part(call.output, rank, call)), part(calls[rank].input, rank_, call), call);
      }
    });
  }
  void abort() noexcept override {
    ++shared_->aborts;
    room_->abort();
  }

 private:
  static void copy(std::byte* target, const std::byte* source, const InsideCall& call) {
    if (target != source) std::memcpy(target, source, call.count * element_bytes(call.type));
  }

  void meet(const InsideCall& call, const std::function<void(const std::vector<InsideCall>&)>& work) {
    ++shared_->calls;
    if (++calls_ >= shared_->broken_from) throw std::runtime_error("broken");
    room_->meet(rank_, call, work);
  }

  const std::shared_ptr<MemoryInside::Shared> shared_;
  const std::shared_ptr<MeetingRoom> room_;
  const std::size_t rank_;
  int calls_ = 0;
};

}  // namespace

void MeetingRoom::meet(std::size_t rank, const InsideCall& call,
                       const std::function<void(const std::vector<InsideCall>& calls)>& work) {
  std::unique_lock lock(mutex_);
  calls_[rank] = call;
  wait_for_all(lock, call.timeout);
  if (is_aborted_) throw std::runtime_error("aborted");  // others may have left, with their memory
  for (const InsideCall& each : calls_) {
    if (each.count == call.count && each.type == call.type && each.op == call.op && each.root == call.root) continue;
    throw std::runtime_error("calls inside a host differ");
  }
  work(calls_);
  wait_for_all(lock, call.timeout);
}

void MeetingRoom::wait_for_all(std::unique_lock<std::mutex>& lock, Milliseconds timeout) {
  const std::size_t turn = turns_;
  if (++arrived_ == calls_.size()) {
    arrived_ = 0;
    ++turns_;
    changed_.notify_all();
  }
  const bool is_over = changed_.wait_for(lock, timeout, [&] { return is_aborted_ || turns_ > turn; });
  if (turns_ > turn) return;
  throw std::runtime_error(is_over ? "aborted" : "not all ranks of the host came in time");
}

void MeetingRoom::abort() {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  changed_.notify_all();
}

InsideFactory MemoryInside::factory() const {
  return [shared = shared_](const InsideHost& host) {
    const std::lock_guard lock(shared->mutex);
    auto& room = shared->rooms[host.name];
    if (room == nullptr) room = std::make_shared<MeetingRoom>(static_cast<std::size_t>(host.size));
    return std::make_unique<Group>(shared, room, host);
  };
}

}  // namespace qccl::testing
