#include "job/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>
#include <vector>

#include "codec/registry.h"

namespace qccl::comm {
namespace {

Status read_algorithm(const std::optional<std::string>& text, Algorithm& target) {
  if (!text) return {};
  if (const auto named = algorithm_named(*text)) {
    target = *named;
    return {};
  }
  std::vector<std::string_view> names{to_string(Algorithm::automatic)};
  for (const Algorithm each : every_algorithm()) names.push_back(to_string(each));
  const std::string_view last = names.back();
  names.pop_back();
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("QCCL_ALGORITHM={}: use {} or {}", *text, fmt::join(names, ", "), last));
}

}  // namespace

Result<Settings> merge_options(const InitOptions& init) {
  QCCL_ASSIGN(Options options, Options::from_environment());
  Settings settings{.options = std::move(options), .compression = none()};
  Options& chosen = settings.options;
  QCCL_TRY(read_algorithm(chosen.algorithm, settings.algorithm));
  if (init.timeout) chosen.timeout = saturating_nanoseconds(*init.timeout);
  if (init.init_timeout) chosen.init_timeout = saturating_nanoseconds(*init.init_timeout);
  if (init.transport) chosen.transport = *init.transport;
  if (init.log) settings.log = *init.log;
  if (init.open) chosen.open = *init.open;
  if (init.door_port) chosen.door_port = *init.door_port;
  if (!init.join.empty()) chosen.join = init.join;
  settings.job = !init.job.empty() ? init.job : environment("TORCHELASTIC_RUN_ID").value_or("default");
  settings.protection.encrypts = chosen.encryption.value_or(true);
  QCCL_ASSIGN(settings.protection.key, secure::find_key(init.key));
  if (chosen.encryption == true && settings.protection.key == nullptr) {
    return Failure(ErrorKind::invalid_argument,
                   "QCCL_ENCRYPTION is on, but this rank has no key to encrypt with: set QCCL_KEY_FILE (qccl key FILE "
                   "makes one), or unset QCCL_ENCRYPTION to send plain");
  }
  if (chosen.log_file) {
    settings.log.enabled = true;
    settings.log.file = *chosen.log_file;
  }
  const auto& text = chosen.compression ? chosen.compression : chosen.qnccl_compression;
  if (init.compression) {
    settings.compression = *init.compression;
  } else if (text) {
    auto compression = parse_compression(*text);
    if (!compression.ok()) {
      const char* variable = chosen.compression ? "QCCL_COMPRESSION" : "BITS and bucket_size";
      return Failure(compression.error().kind, fmt::format("{}: {}", variable, compression.error().message));
    }
    settings.compression = *compression;
  }
  return settings;
}

}  // namespace qccl::comm
