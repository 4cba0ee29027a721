#include "bootstrap/store/store_secrets.h"

#include <fmt/format.h>

#include "base/digest/digest.h"

namespace qccl::bootstrap {

secure::Credentials StoreSecrets::credentials() const {
  std::string identity = fmt::format("qccl store {:016x}", digest(job_));
  secure::Secret secret = key_->derive(fmt::format("{} of {}", identity, job_));
  return {std::move(identity), std::move(secret)};
}

Result<secure::Secret> StoreSecrets::find(std::string_view identity) const {
  secure::Credentials right = credentials();
  if (right.identity == identity) return std::move(right.secret);
  return Failure(ErrorKind::misuse, "belongs to another job, or another restart of this one");
}

}  // namespace qccl::bootstrap
