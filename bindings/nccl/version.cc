// The release of NCCL for which programs are to take this library.
#include <array>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "base/options.h"
#include "process.h"
#include "results.h"

namespace qccl::nccl {
namespace {

constexpr std::string_view kVersion = "2.28.9";

// 22809, or what QCCL_NCCL_VERSION says. Throws invalid_argument if that is no version.
int version_code() {
  const std::string text = environment("QCCL_NCCL_VERSION").value_or(std::string(kVersion));
  std::array<int, 3> parts{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int& part : parts) {
    const auto read = std::from_chars(at, end, part);
    const bool is_last = &part == &parts.back();
    const bool goes_on = !is_last && read.ptr != end && *read.ptr == '.';
    if (read.ec != std::errc() || part < 0 || part > 99 || (is_last ? read.ptr != end : !goes_on)) {
      refuse_argument("QCCL_NCCL_VERSION=" + text + " is no version such as " + std::string(kVersion));
    }
    at = read.ptr + 1;
  }
  return parts[0] * 10000 + parts[1] * 100 + parts[2];
}

}  // namespace

void show_version() {
  const auto wanted = environment("NCCL_DEBUG");
  if (!wanted || *wanted == "NONE") return;
  {
    const std::lock_guard lock(process().mutex);
    if (std::exchange(process().has_shown_version, true)) return;
  }
  const int code = version_code();
  std::printf("NCCL version %d.%d.%d, served by QCCL %s\n", code / 10000, code / 100 % 100, code % 100, version());
  std::fflush(stdout);
}

}  // namespace qccl::nccl

using namespace qccl::nccl;

ncclResult_t ncclGetVersion(int* version) {
  return guarded([&] {
    if (version == nullptr) refuse_argument("ncclGetVersion() with a null pointer");
    *version = version_code();
    return ncclSuccess;
  });
}
