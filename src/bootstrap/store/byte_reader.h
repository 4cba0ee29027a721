// Fields of the messages that ranks exchange before they are connected: little-endian integers, strings as u64 length +
// bytes, lists of strings as u64 count + strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace qccl::bootstrap {

template <class T>
void append_integer(std::string& target, T value) {
  target.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
inline void append_string(std::string& target, std::string_view text) {
  append_integer<std::uint64_t>(target, text.size());
  target.append(text);
}
inline void append_strings(std::string& target, const std::vector<std::string>& texts) {
  append_integer<std::uint64_t>(target, texts.size());
  for (const std::string& text : texts) append_string(target, text);
}

// Takes fields off the front of bytes that a stranger may have written. After the first error every later field is
// empty, so a reader checks once at the end.
class ByteReader {
 public:
  explicit ByteReader(std::string_view source) : source_(source) {}

  template <class T>
  T integer() {
    T value{};
    const std::string_view field = take(sizeof(T));
    if (field.size() == sizeof(T)) std::memcpy(&value, field.data(), sizeof(T));
    return value;
  }
  // A string longer than `limit` is malformed, whether or not its bytes are there.
  std::string string(std::size_t limit) { return std::string(take(length(limit))); }
  // So is a list of more than `count_limit`.
  std::vector<std::string> strings(std::size_t count_limit, std::size_t limit) {
    std::vector<std::string> texts;
    const std::size_t count = length(count_limit);
    while (good() && texts.size() < count) texts.push_back(string(limit));
    return texts;
  }

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
    const auto value = integer<std::uint64_t>();
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
