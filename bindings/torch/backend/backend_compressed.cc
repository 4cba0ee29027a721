// The part of Backend for calls that choose their own compression.
#include <algorithm>
#include <utility>

#include "backend/backend.h"
#include "backend/compressed.h"
#include "errors.h"

namespace qccl::torch_binding {
namespace {

void refuse_sparse(const CompressedPart& part) {
  const bool is_plain = !part.compression || part.compression->is_none();
  if (is_plain && part.feedback.is_none()) return;
  C10_THROW_ERROR(NotImplementedError,
                  "qccl: all_reduce: sparse tensors are never compressed: leave compression and error_feedback out");
}

}  // namespace

ErrorFeedback FeedbackByPlace::of(const void* data, std::size_t count) {
  const auto found = std::find_if(items_.begin(), items_.end(),
                                  [&](const Item& item) { return item.data == data && item.feedback.size() == count; });
  if (found != items_.end()) {
    items_.splice(items_.begin(), items_, found);
    return items_.front().feedback;
  }
  if (items_.size() == kKept) items_.pop_back();
  items_.push_front({data, ErrorFeedback(count)});
  return items_.front().feedback;
}

// The call's error feedback. If it has none and the group keeps feedback for all calls, the feedback of this memory.
ErrorFeedback Backend::feedback_for(const at::Tensor& memory, const Elements& elements, const CallOptions& options) {
  if (!options.error_feedback.is_none() || !keeps_feedback_ || elements.parts != 1) return options.error_feedback;
  const std::size_t count = elements.count_in(memory);
  if (group_.effective_compression(Collective::all_reduce, count, elements.type, options).is_none()) return {};
  const std::lock_guard lock(posting_);
  return feedback_by_place_.of(memory.const_data_ptr(), count);
}

// Compresses only tensors of at least kLeastBytes: smaller ones are lengths and flags.
CallOptions Backend::all_gather_options(const at::Tensor& input, const c10d::AllgatherOptions& torch_options) const {
  constexpr std::size_t kLeastBytes = 64 * 1024;
  CallOptions options = call_options(torch_options.timeout, torch_options.asyncOp);
  const auto type = input.scalar_type();
  const bool is_floating = type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  if (is_floating && input.nbytes() >= kLeastBytes) options.compression = all_gather_compression_;
  return options;
}

void Backend::add_all_reduce(const CompressedPart& part, const CallOptions& of_all, const c10d::ReduceOp& op,
                             Call& call) {
  check_writable(part.tensor, "all_reduce");
  CallOptions options = of_all;
  options.compression = part.compression;
  options.error_feedback = part.feedback;
  const Elements elements = reduction_of(part.tensor, op, "all_reduce", options);
  const at::Tensor memory = call.memory.update(part.tensor);
  options.error_feedback = with_torch_errors([&] { return feedback_for(memory, elements, options); });
  call.posts.push_back([=, data = memory.mutable_data_ptr(), count = elements.count_in(memory)](Communicator& group) {
    return group.all_reduce_async(data, data, count, elements.type, options);
  });
}

Backend::WorkPointer Backend::all_reduce_parts(const std::vector<CompressedPart>& parts, const at::Tensor& whole,
                                               const c10d::ReduceOp& op, bool asynchronous) {
  if (whole.layout() == at::kSparse) {
    for (const CompressedPart& part : parts) refuse_sparse(part);
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    options.asyncOp = asynchronous;
    Tensors tensors{whole};
    return allreduce_sparse(tensors, options);
  }
  Call call{c10d::OpType::ALLREDUCE, "qccl:all_reduce", {whole}, {{whole}}};
  const CallOptions options = call_options(c10d::kUnsetTimeout, asynchronous);
  for (const CompressedPart& part : parts) add_all_reduce(part, options, op, call);
  return start(std::move(call), asynchronous);
}

Backend::WorkPointer Backend::reduce_scatter_part(const CompressedPart& input, const at::Tensor& output,
                                                  const c10d::ReduceOp& op, bool asynchronous) {
  check_writable(output, "reduce_scatter");
  check_parts(input.tensor, output, "reduce_scatter");
  Call call{c10d::OpType::REDUCE_SCATTER, "qccl:reduce_scatter", {input.tensor}, {{output}}};
  CallOptions options = call_options(c10d::kUnsetTimeout, asynchronous);
  options.compression = input.compression;
  options.error_feedback = input.feedback;
  add_reduce_scatter(output, {input.tensor}, options, op, call);
  return start(std::move(call), asynchronous);
}

}  // namespace qccl::torch_binding
