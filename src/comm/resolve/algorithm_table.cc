#include "comm/resolve/algorithm_table.h"

#include <algorithm>
#include <functional>

#include "codec/codec.h"
#include "codec/geometry.h"

namespace qccl::comm {

AlgorithmTable::AlgorithmTable(const CostEnvironment& cost_environment, const std::vector<int>& hosts,
                               double round_trip)
    : cost_environment_(cost_environment), layout_(cost_environment.layout(hosts)), round_trip_(round_trip) {
  const bool has_several = std::ranges::adjacent_find(layout_, std::not_equal_to<>()) != layout_.end();
  cost_environment_.one_machine &= has_several;  // calls inside a host have prices that were measured there
}

plan::SelectionKey AlgorithmTable::selection_key(const CallClass& call) const {
  const auto codec = make_codec(call.compression).take_or_throw();
  plan::SelectionKey key{.collective = call.collective,
                         .elements = call.elements,
                         .type = call.type,
                         .compressed = codec != nullptr,
                         .slice_elements = slice_elements(codec.get(), call.type, cost_environment_.slice_bytes)};
  if (codec == nullptr) return key;
  key.bucket_size = codec->bucket_size();
  key.encoded_bytes =
      static_cast<double>(codec->max_encoded_bytes(key.slice_elements)) / static_cast<double>(key.slice_elements);
  return key;
}

Algorithm AlgorithmTable::choose(const CallClass& call) {
  return chosen_.find_or_make(call, [&] {
    return plan::choose(selection_key(call), layout_,
                        cost_environment_.links(call.compression.to_string(), round_trip_));
  });
}

plan::Choice AlgorithmTable::explain(const CallClass& call) const {
  return plan::explain(selection_key(call), layout_,
                       cost_environment_.links(call.compression.to_string(), round_trip_));
}

}  // namespace qccl::comm
