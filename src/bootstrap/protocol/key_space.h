// One job's keys in a Store that other jobs may use too, as its clients read and write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/protocol/keys.h"
#include "bootstrap/store/pipelined_store.h"

namespace qccl::bootstrap {

class KeySpace {
 public:
  // `store` and `clock` outlive this.
  KeySpace(Store& store, const std::string& job, std::uint32_t restart, const Clock& clock);

  // PipelinedStore::knows_wills(), if the store is one.
  bool knows_wills() const { return pipelined_ != nullptr && pipelined_->knows_wills(); }

  // Names are those of key(). Exceptions of the Store become results: an Error unchanged, anything else as Unsupported.
  Status set(const std::string& name, const std::string& value);
  // Waits for the key until the deadline; empty if it does not exist by then.
  Result<std::optional<std::string>> get(const std::string& name, TimePoint deadline);
  Result<std::int64_t> add(const std::string& name, std::int64_t delta);
  // set() has no answer; the answer to this shows that what was set before has arrived, so that the store may end now.
  Status await_arrival(const std::string& counter);
  // PipelinedStore::leave_will(), if the store is one.
  Status leave_will(const Will& will);
  // add(name, 0) for each name, and ClaimRequest's calls: each in one round trip where the store can.
  Result<std::vector<std::int64_t>> counters(const std::vector<std::string>& names);
  Result<ClaimAnswer> claim(const ClaimRequest& request, TimePoint deadline);

 private:
  std::chrono::milliseconds until(TimePoint deadline) const;
  Will full_will(const Will& will) const;

  Store& store_;
  PipelinedStore* const pipelined_;  // the same store, if it is one
  const Clock& clock_;
  const std::string prefix_;
};

}  // namespace qccl::bootstrap
