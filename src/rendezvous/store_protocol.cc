#include "rendezvous/store_protocol.h"

#include <cstring>

namespace qccl::rendezvous {
namespace {

Failure corrupt(const std::string& what) { return Failure(ErrorKind::corrupt_data, "not a store request: " + what); }

// Takes fields off the front. `short_of_bytes` once the source has ended too early; `bad` says
// what can never become valid. Either way later fields come out empty.
class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  template <class T>
  T integer() {
    T value{};
    const std::string_view field = take(sizeof(T));
    if (field.size() == sizeof(T)) std::memcpy(&value, field.data(), sizeof(T));
    return value;
  }

  std::string string(std::size_t limit) {
    const auto bytes = integer<std::uint64_t>();
    if (bytes > limit) bad_ = "a string of " + std::to_string(bytes) + " bytes";
    if (!bad_.empty()) return {};
    return std::string(take(static_cast<std::size_t>(bytes)));
  }

  std::vector<std::string> keys() {
    const auto count = integer<std::uint64_t>();
    if (count > kMaxKeysPerQuery) bad_ = std::to_string(count) + " keys";
    std::vector<std::string> keys;
    for (std::uint64_t i = 0; i < count && complete() && bad_.empty(); ++i) keys.push_back(string(kMaxKeyBytes));
    return keys;
  }

  bool complete() const { return !short_of_bytes_; }
  const std::string& bad() const { return bad_; }
  std::size_t taken() const { return taken_; }

 private:
  std::string_view take(std::size_t bytes) {
    if (short_of_bytes_ || bytes > source_.size() - taken_) {
      short_of_bytes_ = true;
      return {};
    }
    taken_ += bytes;
    return source_.substr(taken_ - bytes, bytes);
  }

  std::string_view source_;
  std::size_t taken_ = 0;
  bool short_of_bytes_ = false;
  std::string bad_;
};

bool read_fields(Reader& reader, Request& request) {
  switch (request.query) {
    case Query::set:
      request.keys.push_back(reader.string(kMaxKeyBytes));
      request.value = reader.string(kMaxValueBytes);
      return true;
    case Query::get: request.keys.push_back(reader.string(kMaxKeyBytes)); return true;
    case Query::add:
      request.keys.push_back(reader.string(kMaxKeyBytes));
      request.number = reader.integer<std::int64_t>();
      return true;
    case Query::check:
    case Query::wait: request.keys = reader.keys(); return true;
    case Query::validate:
    case Query::ping: request.number = reader.integer<std::uint32_t>(); return true;
    case Query::cancel_wait: return true;
  }
  return false;
}

}  // namespace

void append_string(std::string& target, std::string_view text) {
  append_integer<std::uint64_t>(target, text.size());
  target.append(text);
}

void append_request(std::string& target, const Request& request) {
  append_integer(target, request.query);
  switch (request.query) {
    case Query::validate:
    case Query::ping: append_integer(target, static_cast<std::uint32_t>(request.number)); break;
    case Query::check:
    case Query::wait: append_integer<std::uint64_t>(target, request.keys.size()); [[fallthrough]];
    case Query::set:
    case Query::get:
    case Query::add:
      for (const auto& key : request.keys) append_string(target, key);
      if (request.query == Query::set) append_string(target, request.value);
      if (request.query == Query::add) append_integer(target, request.number);
      break;
    case Query::cancel_wait: break;
  }
}

Result<ParsedRequest> parse_request(std::string_view source) {
  Reader reader(source);
  ParsedRequest parsed;
  const auto query = reader.integer<std::uint8_t>();
  if (!reader.complete()) return parsed;
  parsed.request.query = static_cast<Query>(query);
  if (!read_fields(reader, parsed.request)) return corrupt("query " + std::to_string(query));
  if (!reader.bad().empty()) return corrupt(reader.bad());
  if (reader.complete()) parsed.bytes = reader.taken();
  return parsed;
}

}  // namespace qccl::rendezvous
