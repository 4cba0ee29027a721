#include "bootstrap/store/key_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace qccl::bootstrap {
namespace {

// Job names are the user's: characters that could be taken for a separator are written as %XX.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    result += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

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

std::string key_prefix(const std::string& job, std::uint32_t restart) {
  return fmt::format("qccl/{}/{}/", escaped(job), restart);
}

KeySpace::KeySpace(Store& store, const std::string& job, std::uint32_t restart, const Clock& clock)
    : store_(store), clock_(clock), prefix_(key_prefix(job, restart)) {}

Status KeySpace::set(const std::string& key, const std::string& value) {
  return guarded<void>([&] {
    store_.set(prefix_ + key, value);
    return Status();
  });
}

Result<std::optional<std::string>> KeySpace::get(const std::string& key, TimePoint deadline) {
  const Nanoseconds left = std::max(deadline - clock_.now(), Nanoseconds::zero());
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(left);
  return guarded<std::optional<std::string>>([&] { return store_.get(prefix_ + key, timeout); });
}

Result<std::int64_t> KeySpace::add(const std::string& key, std::int64_t delta) {
  return guarded<std::int64_t>([&] { return store_.add(prefix_ + key, delta); });
}

}  // namespace qccl::bootstrap
