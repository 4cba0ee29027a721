// The release of NCCL for which programs are to take this library.
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "base/options.h"
#include "base/text.h"
#include "process.h"
#include "results.h"

namespace qccl::nccl {
namespace {

constexpr std::string_view kVersion = "2.28.9";

// 22809, or what QCCL_NCCL_VERSION says. Throws invalid_argument if that is no version.
int version_code() {
  const std::string text = environment("QCCL_NCCL_VERSION").value_or(std::string(kVersion));
  const auto parts = split(text, '.');
  bool is_version = parts.size() == 3;
  int code = 0;
  for (std::size_t i = 0; i < 3 && is_version; ++i) {
    const int part = parse_number<int>(parts[i]).value_or(-1);
    is_version = part >= 0 && part <= 99;
    code = 100 * code + part;
  }
  if (!is_version) refuse_argument("QCCL_NCCL_VERSION=" + text + " is no version such as " + std::string(kVersion));
  return code;
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
