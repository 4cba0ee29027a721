// Fields of the messages that ranks exchange before they are connected: little-endian integers,
// and strings as u64 length + bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace qccl::bootstrap {

template <class T>
void append_integer(std::string& target, T value) {
  target.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void append_string(std::string& target, std::string_view text);

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
  std::string string(std::size_t limit);
  // A count of following fields; malformed beyond `limit`.
  std::uint64_t count(std::uint64_t limit);

  // The source ended too early: with more bytes it may become valid.
  bool incomplete() const { return incomplete_; }
  // No further bytes can make it valid.
  bool malformed() const { return malformed_; }
  bool good() const { return !incomplete_ && !malformed_; }
  // The whole source was read, without errors.
  bool finished() const { return good() && taken_ == source_.size(); }
  std::size_t taken() const { return taken_; }

 private:
  std::string_view take(std::size_t bytes);

  std::string_view source_;
  std::size_t taken_ = 0;
  bool incomplete_ = false;
  bool malformed_ = false;
};

}  // namespace qccl::bootstrap
