#include "bootstrap/store/byte_reader.h"

namespace qccl::bootstrap {

void append_string(std::string& target, std::string_view text) {
  append_integer<std::uint64_t>(target, text.size());
  target.append(text);
}

std::string_view ByteReader::take(std::size_t bytes) {
  if (!good()) return {};
  if (bytes > source_.size() - taken_) {
    incomplete_ = true;
    return {};
  }
  taken_ += bytes;
  return source_.substr(taken_ - bytes, bytes);
}

std::string ByteReader::string(std::size_t limit) {
  const auto bytes = count(limit);
  return std::string(take(static_cast<std::size_t>(bytes)));
}

std::uint64_t ByteReader::count(std::uint64_t limit) {
  const auto value = integer<std::uint64_t>();
  if (value > limit) malformed_ = true;
  return good() ? value : 0;
}

}  // namespace qccl::bootstrap
