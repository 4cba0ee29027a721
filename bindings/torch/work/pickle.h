// Python's pickle, as far as plain data needs it: what `pickle.load()` reads, in protocol 2.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace qccl::torch_binding {

// Objects become dicts in the same order, arrays lists; text that is no UTF-8 gets replacement characters.
std::string pickle(const nlohmann::ordered_json& tree);

}  // namespace qccl::torch_binding
