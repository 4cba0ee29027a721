#include "tools/run/remote/frames.h"

namespace qccl::tools {
namespace {

constexpr std::size_t kHeader = 9;
constexpr auto kLastKind = FrameKind::alive;

void append_number(std::string& bytes, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift & 0xFF));
}

std::uint32_t number_at(std::string_view bytes, std::size_t place) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[place + i])) << (8 * i);
  }
  return value;
}

}  // namespace

std::string encode_frame(FrameKind kind, std::uint32_t number, std::string_view text) {
  std::string bytes(1, static_cast<char>(kind));
  append_number(bytes, number);
  append_number(bytes, static_cast<std::uint32_t>(text.size()));
  bytes.append(text);
  return bytes;
}

void FrameReader::append(std::string_view bytes) {
  bytes_.erase(0, read_);
  read_ = 0;
  bytes_.append(bytes);
}

std::optional<std::string> FrameReader::greeting() {
  const auto begin = bytes_.find(kGreeting, read_);
  if (begin == std::string::npos) {
    // Its beginning may be at the end of what has come.
    if (bytes_.size() > kGreeting.size()) read_ = bytes_.size() - kGreeting.size();
    return std::nullopt;
  }
  const auto end = bytes_.find('\n', begin);
  if (end == std::string::npos) return std::nullopt;
  read_ = end + 1;
  return bytes_.substr(begin + kGreeting.size(), end - begin - kGreeting.size());
}

std::optional<Frame> FrameReader::next() {
  const std::string_view left = std::string_view(bytes_).substr(read_);
  if (broken_ || left.size() < kHeader) return std::nullopt;
  const auto kind = static_cast<std::uint8_t>(left[0]);
  const std::size_t size = number_at(left, 5);
  broken_ = kind == 0 || kind > static_cast<std::uint8_t>(kLastKind) || size > kMaxText;
  if (broken_ || left.size() < kHeader + size) return std::nullopt;
  read_ += kHeader + size;
  return Frame{static_cast<FrameKind>(kind), number_at(left, 1), std::string(left.substr(kHeader, size))};
}

}  // namespace qccl::tools
