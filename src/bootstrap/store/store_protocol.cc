#include "bootstrap/store/store_protocol.h"

#include "bootstrap/store/byte_reader.h"

namespace qccl::bootstrap {
namespace {

bool read_fields(ByteReader& reader, StoreRequest& request) {
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
    case Query::wait: request.keys = reader.strings(kMaxKeysPerQuery, kMaxKeyBytes); return true;
    case Query::validate:
    case Query::ping: request.number = reader.integer<std::uint32_t>(); return true;
    case Query::cancel_wait: return true;
  }
  return false;
}

}  // namespace

std::string wire_key(const std::string& key) { return "/" + key; }

void append_request(std::string& target, const StoreRequest& request) {
  append_integer(target, request.query);
  switch (request.query) {
    case Query::validate:
    case Query::ping: append_integer(target, static_cast<std::uint32_t>(request.number)); break;
    case Query::check:
    case Query::wait: append_strings(target, request.keys); break;
    case Query::set:
    case Query::get:
    case Query::add:
      append_string(target, request.keys[0]);
      if (request.query == Query::set) append_string(target, request.value);
      if (request.query == Query::add) append_integer(target, request.number);
      break;
    case Query::cancel_wait: break;
  }
}

Result<ParsedRequest> parse_request(std::string_view source) {
  ByteReader reader(source);
  ParsedRequest parsed;
  const auto query = reader.integer<std::uint8_t>();
  if (reader.incomplete()) return parsed;
  parsed.request.query = static_cast<Query>(query);
  if (!read_fields(reader, parsed.request) || reader.malformed()) {
    return Failure(ErrorKind::corrupt_data, "not a store request (query " + std::to_string(query) + ")");
  }
  if (reader.good()) parsed.bytes = reader.taken();
  return parsed;
}

}  // namespace qccl::bootstrap
