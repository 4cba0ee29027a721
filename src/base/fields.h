// The library's byte format of messages and saved states: fields, one after another, without names and padding.
//
// | field            | bytes                                                           |
// |------------------|-----------------------------------------------------------------|
// | integer          | the type's size, little-endian; so are enums and floats         |
// | string, block    | length (uint64), then so many bytes                             |
// | values           | length in bytes (uint64), then the values, each as an integer   |
// | strings          | count (uint64), then so many strings                            |
// | one_string       | a string: a list that always has one                            |
// | raw              | bytes whose number both sides know                              |
//
// FieldWriter and FieldReader have the same members, so that a format lists its fields once, in a visit() for both:
//
//   void visit(auto& fields, auto& seat) { fields.integer(seat.rank); fields.string(seat.job, kMaxJobBytes); }
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace qccl {

// Appends fields to a std::string or std::vector<std::byte>.
template <class Out = std::string>
class FieldWriter {
 public:
  // As a Wire, if that is another type.
  template <class Wire = void, class T>
  void integer(const T& value) {
    const auto wire = static_cast<std::conditional_t<std::is_void_v<Wire>, T, Wire>>(value);
    raw(std::as_bytes(std::span(&wire, 1)));
  }
  // Limits are for readers: the writer's caller keeps to them.
  void string(std::string_view text, std::size_t /*limit*/) { block(std::as_bytes(std::span(text))); }
  void strings(const std::vector<std::string>& texts, std::size_t /*count_limit*/, std::size_t limit) {
    integer<std::uint64_t>(texts.size());
    for (const std::string& text : texts) string(text, limit);
  }
  void one_string(const std::vector<std::string>& texts, std::size_t limit) { string(texts[0], limit); }
  void block(ConstBytes bytes) {
    integer<std::uint64_t>(bytes.size());
    raw(bytes);
  }
  template <class T, std::size_t kExtent>
  void values(std::span<T, kExtent> values) {
    block(std::as_bytes(values));
  }
  void raw(ConstBytes bytes) {
    const auto* begin = reinterpret_cast<const typename Out::value_type*>(bytes.data());
    out_.insert(out_.end(), begin, begin + bytes.size());
  }

  void reserve(std::size_t bytes) { out_.reserve(bytes); }
  ConstBytes written() const { return std::as_bytes(std::span(out_)); }
  Out take() { return std::move(out_); }

 private:
  Out out_;
};

// Takes fields off the front of a stranger's bytes, and allocates nothing before it has seen them. After the first
// error every later field is empty, and a number zero: check at the end.
class FieldReader {
 public:
  explicit FieldReader(std::string_view source) : source_(source) {}
  explicit FieldReader(ConstBytes source) : source_(as_text(source)) {}

  template <class Wire = void, class T>
  void integer(T& value) {
    std::conditional_t<std::is_void_v<Wire>, T, Wire> wire{};
    static_assert(!std::is_same_v<decltype(wire), bool>, "a byte may be neither true nor false: give a Wire");
    raw(std::as_writable_bytes(std::span(&wire, 1)));
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
  // A part of the source.
  void block(ConstBytes& bytes) {
    const std::string_view part = take(length(SIZE_MAX));
    bytes = std::as_bytes(std::span(part));
  }
  // Another number of values is malformed, and leaves these as they are.
  template <class T, std::size_t kExtent>
  void values(std::span<T, kExtent> values) {
    const std::size_t bytes = length(values.size_bytes());
    malformed_ |= good() && bytes != values.size_bytes();
    raw(std::as_writable_bytes(values));
  }
  // Bytes that are not there leave these as they are.
  void raw(Bytes bytes) {
    const std::string_view field = take(bytes.size());
    if (!field.empty()) std::memcpy(bytes.data(), field.data(), field.size());
  }

  // The source ended too early: with more bytes it may become valid.
  bool incomplete() const { return incomplete_; }
  // No further bytes can make it valid.
  bool malformed() const { return malformed_; }
  bool good() const { return !incomplete_ && !malformed_; }
  // The whole source was read, without errors.
  bool finished() const { return good() && taken_ == source_.size(); }
  std::size_t taken() const { return taken_; }
  // CorruptData unless finished(); `what` is the sentence's subject.
  Status check_finished(std::string_view what) const {
    if (finished()) return {};
    const char* error = incomplete_ ? " is cut off" : malformed_ ? " has a field of a wrong length" : " is too long";
    return Failure(ErrorKind::corrupt_data, std::string(what) + error);
  }

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

}  // namespace qccl
