// Specifications: any text is either rejected with an InvalidArgument that lists the valid forms, or it
// is a compression whose own text means the same.
#include <string_view>

#include "codec/registry.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qccl;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = parse_compression(text);
  if (!parsed.ok()) {
    fuzz::require(parsed.error().kind == ErrorKind::invalid_argument, "a refusal is an InvalidArgument");
    fuzz::require(parsed.error().message.find("minmax:bits=") != std::string::npos, "and lists what is allowed");
    return 0;
  }
  const std::string written = parsed.value().to_string();
  const auto again = parse_compression(written);
  fuzz::require(again.ok() && again.value() == parsed.value(), "the text of a compression reads back to it");
  fuzz::require(make_codec(parsed.value()).ok(), "what was parsed has a codec");
  return 0;
}
