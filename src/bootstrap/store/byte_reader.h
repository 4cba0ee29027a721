// Fields of the messages that ranks exchange before they are connected: little-endian integers, strings as u64 length +
// bytes, lists of strings as u64 count + strings. ByteWriter and ByteReader have the same members, so that a message
// lists its fields once, in a visit() for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace qccl::bootstrap {

class ByteWriter {
 public:
  // As a Wire, if that is another type.
  template <class Wire = void, class T>
  void integer(const T& value) {
    const auto wire = static_cast<std::conditional_t<std::is_void_v<Wire>, T, Wire>>(value);
    bytes_.append(reinterpret_cast<const char*>(&wire), sizeof(wire));
  }
  // Limits are for readers: the writer's caller keeps to them.
  void string(std::string_view text, std::size_t /*limit*/) {
    integer<std::uint64_t>(text.size());
    bytes_.append(text);
  }
  void strings(const std::vector<std::string>& texts, std::size_t /*count_limit*/, std::size_t limit) {
    integer<std::uint64_t>(texts.size());
    for (const std::string& text : texts) string(text, limit);
  }
  // A list that always has one string: without a count.
  void one_string(const std::vector<std::string>& texts, std::size_t limit) { string(texts[0], limit); }

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Takes fields off the front of bytes that a stranger may have written. After the first error every later field is
// empty, so a reader checks once at the end.
class ByteReader {
 public:
  explicit ByteReader(std::string_view source) : source_(source) {}

  template <class Wire = void, class T>
  void integer(T& value) {
    std::conditional_t<std::is_void_v<Wire>, T, Wire> wire{};
    const std::string_view field = take(sizeof(wire));
    if (field.size() == sizeof(wire)) std::memcpy(&wire, field.data(), sizeof(wire));
    value = static_cast<T>(wire);
  }
  // A string longer than `limit` is malformed, whether or not its bytes are there.
  void string(std::string& text, std::size_t limit) { text = take(length(limit)); }
  // So is a list of more than `count_limit`.
  void strings(std::vector<std::string>& texts, std::size_t count_limit, std::size_t limit) {
    const std::size_t count = length(count_limit);
    while (good() && texts.size() < count) string(texts.emplace_back(), limit);
  }
  void one_string(std::vector<std::string>& texts, std::size_t limit) { string(texts.emplace_back(), limit); }

  // The source ended too early: with more bytes it may become valid.
  bool incomplete() const { return incomplete_; }
  // No further bytes can make it valid.
  bool malformed() const { return malformed_; }
  bool good() const { return !incomplete_ && !malformed_; }
  // The whole source was read, without errors.
  bool finished() const { return good() && taken_ == source_.size(); }
  std::size_t taken() const { return taken_; }

 private:
  std::size_t length(std::size_t limit) {
    std::uint64_t value = 0;
    integer(value);
    malformed_ |= value > limit;
    return good() ? static_cast<std::size_t>(value) : 0;
  }
  std::string_view take(std::size_t bytes) {
    if (!good()) return {};
    incomplete_ = bytes > source_.size() - taken_;
    if (incomplete_) return {};
    taken_ += bytes;
    return source_.substr(taken_ - bytes, bytes);
  }

  std::string_view source_;
  std::size_t taken_ = 0;
  bool incomplete_ = false;
  bool malformed_ = false;
};

}  // namespace qccl::bootstrap
