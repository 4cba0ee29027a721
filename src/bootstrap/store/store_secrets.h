// What a rank and the store that rank 0 serves prove to each other if the job has a key.
//
// The rank is TLS's client, with the identity "qccl store JOB" (JOB: a digest of name and restart, 16 hexadecimal
// digits). The secret is derived from key, name and restart.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "secure/key.h"
#include "secure/tls.h"

namespace qccl::bootstrap {

class StoreSecrets {
 public:
  // The job has no key, or its store is not ours.
  StoreSecrets() = default;
  StoreSecrets(std::shared_ptr<const secure::Key> key, const std::string& job, std::uint32_t restart)
      : key_(std::move(key)), job_(job + "/" + std::to_string(restart)) {}

  bool has_key() const { return key_ != nullptr; }
  secure::Credentials credentials() const;
  // For the server. Misuse if it is no identity of this job.
  Result<secure::Secret> find(std::string_view identity) const;

 private:
  std::shared_ptr<const secure::Key> key_;
  std::string job_;
};

}  // namespace qccl::bootstrap
