#include "engine/call/executable_plan.h"

#include <utility>

#include "codec/slicing.h"

namespace qccl::engine {
namespace {

plan::Request request_of(const ResolvedCall& call, int world, const Codec* codec, std::uint64_t slice_elements) {
  return {.collective = call.collective,
          .algorithm = call.algorithm,
          .world = world,
          .root = call.root,
          .count = call.count,
          .bucket_size = codec != nullptr ? codec->bucket_size() : 1,
          .slice_elements = slice_elements,
          .compressed = codec != nullptr,
          .counts = {call.counts.begin(), call.counts.end()},
          .hosts = {call.hosts.begin(), call.hosts.end()}};
}

}  // namespace

ExecutablePlan::ExecutablePlan(const ResolvedCall& call, int world, GroupRank rank, std::shared_ptr<const Codec> codec)
    : call_(std::make_shared<const ResolvedCall>(call)),
      fingerprint_(call.fingerprint()),
      codec_(std::move(codec)),
      slice_elements_(qccl::slice_elements(codec_.get(), call.type, call.slice_bytes)),
      input_elements_(engine::input_elements(call, world, rank.value())),
      output_elements_(engine::output_elements(call, world, rank.value())),
      schedule_(call.board ? plan::RankSchedule{}
                           : plan::schedule_of(request_of(call, world, codec_.get(), slice_elements_), rank.value())),
      streams_(*this, world) {}

std::uint64_t ExecutablePlan::slice_count(std::uint64_t elements) const {
  return elements == 0 ? 1 : qccl::slice_count(elements, slice_elements_);
}

std::size_t ExecutablePlan::slice_length(std::uint64_t elements, std::uint64_t slice) const {
  return elements == 0 ? 0 : static_cast<std::size_t>(slice_range(elements, slice_elements_, slice).count);
}

std::size_t ExecutablePlan::payload_limit(std::uint64_t elements, bool raw) const {
  const auto count = static_cast<std::size_t>(elements);
  return raw || codec_ == nullptr ? count * element_bytes(call_->type) : codec_->max_encoded_bytes(count);
}

}  // namespace qccl::engine
