#include "bootstrap/store/store_secrets.h"

#include <fmt/format.h>

#include "base/digest/digest.h"
#include "base/text.h"
#include "bootstrap/launcher/launch_identity.h"

namespace qccl::bootstrap {

secure::Credentials StoreSecrets::credentials(int rank) const {
  std::string identity = fmt::format("qccl store {:016x} {}", digest(job_), rank);
  secure::Secret secret = key_->derive(fmt::format("{} of {}", identity, job_));
  return {std::move(identity), std::move(secret)};
}

Result<secure::Secret> StoreSecrets::find(std::string_view identity) const {
  const int rank = parse_number<int>(identity.substr(identity.rfind(' ') + 1)).value_or(-1);
  if (rank >= 0 && rank < kMaxWorld) {
    secure::Credentials right = credentials(rank);
    if (right.identity == identity) return std::move(right.secret);
  }
  return Failure(ErrorKind::misuse, "belongs to another job, or another restart of this one");
}

}  // namespace qccl::bootstrap
