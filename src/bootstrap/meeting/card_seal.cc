#include "bootstrap/meeting/card_seal.h"

#include <fmt/format.h>

#include <span>

#include "base/bytes.h"
#include "base/fields.h"
#include "base/text.h"

namespace qccl::bootstrap {

std::string CardSeal::make(std::uint64_t generation, int rank, const Record& record) const {
  if (key_ == nullptr) return "";
  FieldWriter writer;
  writer.integer(generation);
  writer.integer(static_cast<std::uint32_t>(rank));
  writer.integer(record.world);
  writer.integer(record.token);
  writer.string(printable(record.process), kMaxProcessBytes);
  writer.string(record.card, kMaxCardBytes);
  const std::string sealed = writer.take();
  const secure::Secret secret = key_->derive(fmt::format("qccl card of {}/{}", job_, restart_));
  return std::string(as_text(secure::authenticate(secret, std::as_bytes(std::span(sealed)))));
}

Status CardSeal::check(std::uint64_t generation, int rank, const Record& record) const {
  constexpr const char* kAdvice =
      "give all ranks the same key (QCCL_KEY_FILE, QCCL_KEY or InitOptions::key), unless a stranger that reaches the "
      "store left this rank's card";
  const auto refused = [&](const char* what) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("rank {} ({}) {}: {}", rank, record.process, what, kAdvice));
  };
  if (key_ == nullptr) return record.seal.empty() ? Status() : refused("has a key, and this rank has none");
  if (record.seal.empty()) return refused("has no key, and this rank has one");
  const std::string right = make(generation, rank, record);
  const bool is_right = secure::equal(std::as_bytes(std::span(right)), std::as_bytes(std::span(record.seal)));
  return is_right ? Status() : refused("has another key than this rank");
}

}  // namespace qccl::bootstrap
