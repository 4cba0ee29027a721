#include "engine/compute/message_slices.h"

#include <algorithm>

#include "codec/geometry.h"

namespace qccl::engine {

void MessageSlices::begin(const CallArguments& arguments, std::uint64_t counter) {
  const Message& message = *arguments.message;
  arguments_ = &arguments;
  math_.type = message.type;
  math_.codec = message.codec.get();
  math_.residuals = arguments.feedback != nullptr ? arguments.feedback->residual() : nullptr;
  math_.keys.input = random_key(context_.seed, counter, RandomPhase::message);
  elements_ = message.count;
  slice_elements_ = slice_elements(math_.codec, message.type, context_.slice_bytes);
  count_ = std::max<std::uint64_t>(1, slice_count(elements_, slice_elements_));
  kept_elements_ = 0;
}

std::size_t MessageSlices::length(std::uint64_t slice) const {
  return static_cast<std::size_t>(slice_range(elements_, slice_elements_, slice).count);
}

std::size_t MessageSlices::payload_limit(std::uint64_t slice) const {
  const std::size_t elements = length(slice);
  return math_.codec == nullptr ? elements * math_.element_size() : math_.codec->max_encoded_bytes(elements);
}

std::size_t MessageSlices::offset(std::uint64_t slice) const {
  return static_cast<std::size_t>(std::min(elements_, slice * slice_elements_)) * math_.element_size();
}

void MessageSlices::begin_slice(std::uint64_t slice) {
  const std::uint64_t first_element = slice * slice_elements_;
  input_.begin(first_element);
  encoder_.begin(first_element);
}

std::size_t MessageSlices::write(std::uint64_t slice, Bytes payload) {
  const std::size_t elements = length(slice);
  begin_slice(slice);
  if (math_.residuals != nullptr) {
    arguments_->feedback->save(kept_elements_, elements);
    kept_elements_ += elements;
  }
  const std::byte* const values = input_.take(arguments_->input + offset(slice), elements);
  const std::size_t bytes = encoder_.encode(values, elements, payload);
  input_.release();
  encoder_.release();
  return bytes;
}

Status MessageSlices::read(std::uint64_t slice, ConstBytes payload) {
  begin_slice(slice);
  Status decoded = encoder_.decode(payload, arguments_->output + offset(slice), length(slice), false);
  encoder_.release();
  return decoded;
}

Status MessageSlices::copy_from(MessageSlices& sender) {
  const ScratchPool::Buffer payload = math_.pool->take();
  for (std::uint64_t slice = 0; slice < count_; ++slice) {
    const std::size_t bytes = sender.write(slice, {payload.get(), kScratchBytes});
    QCCL_TRY(read(slice, {payload.get(), bytes}));
  }
  return {};
}

void MessageSlices::end(bool well) {
  if (math_.residuals == nullptr) return;
  math_.residuals = nullptr;
  if (!well) arguments_->feedback->take_back(0, static_cast<std::size_t>(kept_elements_));
  arguments_->feedback->end(well);
}

}  // namespace qccl::engine
