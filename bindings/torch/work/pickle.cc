#include "work/pickle.h"

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace qccl::torch_binding {
namespace {

using Json = nlohmann::ordered_json;

// The machine that a pickle is read on; opcodes are those of Python's pickletools.
class Pickler {
 public:
  std::string finish(const Json& tree) {
    text_ = "\x80\x02";  // PROTO 2
    add(tree);
    return text_ + ".";
  }

 private:
  void add(const Json& tree) {
    switch (tree.type()) {
      case Json::value_t::object: return add_object(tree);
      case Json::value_t::array: return add_array(tree);
      case Json::value_t::string: return add_string(tree);
      case Json::value_t::boolean: text_ += tree.get<bool>() ? '\x88' : '\x89'; return;
      case Json::value_t::number_integer:
      case Json::value_t::number_unsigned: return add_integer(tree.get<std::int64_t>());
      case Json::value_t::number_float: return add_float(tree.get<double>());
      default: text_ += 'N'; return;
    }
  }

  void add_object(const Json& object) {
    text_ += "}(";  // EMPTY_DICT MARK
    for (const auto& [key, value] : object.items()) {
      add(key);
      add(value);
    }
    text_ += 'u';  // SETITEMS
  }

  void add_array(const Json& array) {
    text_ += "](";  // EMPTY_LIST MARK
    for (const Json& value : array) add(value);
    text_ += 'e';  // APPENDS
  }

  void add_string(const Json& string) {
    // Through JSON, which replaces what is no UTF-8.
    const auto valid = Json::parse(string.dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
    text_ += 'X';  // BINUNICODE
    add_bytes(valid.size(), 4);
    text_ += valid;
  }

  void add_integer(std::int64_t number) {
    text_ += "\x8a\x08";  // LONG1 of 8 bytes
    add_bytes(static_cast<std::uint64_t>(number), 8);
  }

  void add_float(double number) {
    text_ += 'G';  // BINFLOAT, the highest byte first
    for (int shift = 56; shift >= 0; shift -= 8)
      text_ += static_cast<char>(std::bit_cast<std::uint64_t>(number) >> shift);
  }

  void add_bytes(std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(number >> (8 * i));
  }

  std::string text_;
};

}  // namespace

std::string pickle(const nlohmann::ordered_json& tree) { return Pickler().finish(tree); }

}  // namespace qccl::torch_binding
