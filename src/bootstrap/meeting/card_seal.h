// The seal on a rank's record in the store: HMAC-SHA256 with the job's key, so that a store, and whoever writes to it,
// is trusted with no more than passing it on. It covers the record, its rank, and job, restart and generation: a seal
// is good for no other place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "bootstrap/protocol/formats.h"
#include "secure/key.h"

namespace qccl::bootstrap {

class CardSeal {
 public:
  // The job has no key.
  CardSeal() = default;
  CardSeal(std::shared_ptr<const secure::Key> key, std::string job, std::uint32_t restart)
      : key_(std::move(key)), job_(std::move(job)), restart_(restart) {}

  // For Record::seal; empty without a key.
  std::string make(std::uint64_t generation, int rank, const Record& record) const;
  // InvalidArgument, with the reason, if the rank has another key, or none, or has one where this rank has none.
  Status check(std::uint64_t generation, int rank, const Record& record) const;

 private:
  std::shared_ptr<const secure::Key> key_;
  std::string job_;
  std::uint32_t restart_ = 0;
};

}  // namespace qccl::bootstrap
