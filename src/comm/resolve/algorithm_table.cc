#include "comm/resolve/algorithm_table.h"

#include <algorithm>
#include <functional>

#include "codec/codec.h"
#include "codec/slicing.h"

namespace qccl::comm {

AlgorithmTable::AlgorithmTable(const CostEnvironment& cost_environment, const std::vector<int>& hosts)
    : cost_environment_(cost_environment), layout_(cost_environment.layout(hosts)) {
  const bool several = std::adjacent_find(layout_.begin(), layout_.end(), std::not_equal_to<>()) != layout_.end();
  cost_environment_.one_machine &= several;  // what is inside a host is priced as it was measured, there
}

plan::SelectionKey AlgorithmTable::question(const Asked& asked) const {
  const auto codec = make_codec(asked.compression).take_or_throw();
  plan::SelectionKey question{.collective = asked.collective,
                              .elements = asked.elements,
                              .type = asked.type,
                              .compressed = codec != nullptr,
                              .slice_elements = slice_elements(codec.get(), asked.type, cost_environment_.slice_bytes)};
  if (codec == nullptr) return question;
  question.bucket_size = codec->bucket_size();
  question.encoded_bytes = static_cast<double>(codec->max_encoded_bytes(question.slice_elements)) /
                           static_cast<double>(question.slice_elements);
  return question;
}

std::uint64_t AlgorithmTable::key(const Asked& asked) {
  auto codec = std::find(codecs_.begin(), codecs_.end(), asked.compression);
  if (codec == codecs_.end()) codec = codecs_.insert(codec, asked.compression);
  std::uint64_t key = static_cast<std::uint64_t>(codec - codecs_.begin());
  key = key << 8 | static_cast<std::uint64_t>(asked.collective);
  key = key << 8 | static_cast<std::uint64_t>(asked.type);
  return key << 16 | static_cast<std::uint64_t>(plan::size_class(asked.elements));
}

Algorithm AlgorithmTable::choose(const Asked& asked) {
  const std::uint64_t place = key(asked);
  if (const auto found = known_.find(place); found != known_.end()) return found->second;
  const Algorithm chosen =
      plan::choose(question(asked), layout_, cost_environment_.links(asked.compression.to_string()));
  known_.emplace(place, chosen);
  return chosen;
}

plan::Choice AlgorithmTable::explain(const Asked& asked) const {
  return plan::explain(question(asked), layout_, cost_environment_.links(asked.compression.to_string()));
}

}  // namespace qccl::comm
