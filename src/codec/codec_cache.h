// Codecs that a group's calls have had, so that calls that take turns with several do not make them again.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "codec/codec.h"

namespace qccl {

// One thread at a time. Allocates only for a codec that it does not hold.
class CodecCache {
 public:
  // Null for none. InvalidArgument as make_codec().
  Result<std::shared_ptr<const Codec>> get(const Compression& compression) {
    const auto found =
        std::find_if(codecs_.begin(), codecs_.end(), [&](const Item& item) { return item.first == compression; });
    if (found != codecs_.end()) return found->second;
    auto made = make_codec(compression);
    if (!made.ok()) return made;
    if (codecs_.size() == kKept) codecs_.erase(codecs_.begin());
    codecs_.emplace_back(compression, *made);
    return made;
  }

 private:
  using Item = std::pair<Compression, std::shared_ptr<const Codec>>;
  // More than a program has at a time: a policy's widths, a schedule's steps come one after the other.
  static constexpr std::size_t kKept = 32;
  std::vector<Item> codecs_;  // those made first in front
};

}  // namespace qccl
