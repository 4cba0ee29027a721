// Foreign text of any length, as it is kept.
#pragma once

#include <cstddef>
#include <string>

namespace qccl::dashboard {

inline std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 300;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace qccl::dashboard
