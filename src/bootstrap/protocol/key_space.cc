#include "bootstrap/protocol/key_space.h"

#include <algorithm>
#include <exception>

namespace qccl::bootstrap {
namespace {

template <class T>
Result<T> guarded(const auto& call) {
  try {
    return call();
  } catch (const Error& error) {
    return Failure(error.info());
  } catch (const std::exception& exception) {
    return Failure(ErrorKind::unsupported, std::string("the store failed: ") + exception.what());
  }
}

}  // namespace

KeySpace::KeySpace(Store& store, const std::string& job, std::uint32_t restart, const Clock& clock)
    : store_(store),
      pipelined_(dynamic_cast<PipelinedStore*>(&store)),
      clock_(clock),
      prefix_(key_prefix(job, restart)) {}

std::chrono::milliseconds KeySpace::until(TimePoint deadline) const {
  return std::chrono::ceil<std::chrono::milliseconds>(std::max(deadline - clock_.now(), Nanoseconds::zero()));
}

Status KeySpace::set(const std::string& name, const std::string& value) {
  return guarded<void>([&] {
    store_.set(prefix_ + name, value);
    return Status();
  });
}

Will KeySpace::full_will(const Will& will) const {
  Will full;
  for (const auto& [key, value] : will) full.emplace_back(prefix_ + key, value);
  return full;
}

Status KeySpace::leave_will(const Will& will) {
  if (pipelined_ == nullptr) return {};
  return guarded<void>([&] {
    pipelined_->leave_will(full_will(will));
    return Status();
  });
}

Result<std::optional<std::string>> KeySpace::get(const std::string& name, TimePoint deadline) {
  return guarded<std::optional<std::string>>([&] { return store_.get(prefix_ + name, until(deadline)); });
}

Result<std::int64_t> KeySpace::add(const std::string& name, std::int64_t delta) {
  return guarded<std::int64_t>([&] { return store_.add(prefix_ + name, delta); });
}

Status KeySpace::await_arrival(const std::string& counter) {
  auto arrived = add(counter, 0);
  return arrived ? Status() : Status(arrived.failure());
}

Result<std::vector<std::int64_t>> KeySpace::counters(const std::vector<std::string>& names) {
  return guarded<std::vector<std::int64_t>>([&] {
    std::vector<std::string> full_keys;
    for (const std::string& name : names) full_keys.push_back(prefix_ + name);
    if (pipelined_ != nullptr) return pipelined_->counters(full_keys);
    std::vector<std::int64_t> sums;
    for (const std::string& full : full_keys) sums.push_back(store_.add(full, 0));
    return sums;
  });
}

Result<ClaimAnswer> KeySpace::claim(const ClaimRequest& request, TimePoint deadline) {
  const ClaimRequest full{prefix_ + request.counter, prefix_ + request.card_key, request.card,
                          prefix_ + request.awaited_key, full_will(request.will)};
  return guarded<ClaimAnswer>([&] {
    if (pipelined_ != nullptr) return pipelined_->claim(full, until(deadline));
    return claim_in_steps(store_, full, until(deadline));
  });
}

}  // namespace qccl::bootstrap
