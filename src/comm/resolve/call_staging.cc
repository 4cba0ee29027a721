#include "comm/resolve/call_staging.h"

#include <array>

namespace qccl::comm {
namespace {

using engine::CallArguments;
using engine::MemoryKind;

std::array<UsedBuffer, 2> named(const engine::StagedCall::Buffers& buffers) {
  return {UsedBuffer{"input", buffers.input, buffers.input_bytes},
          UsedBuffer{"output", buffers.output, buffers.output_bytes}};
}

void attach(CallArguments& arguments, engine::StagedCallPtr staged) {
  arguments.input = staged->input();
  arguments.output = staged->output();
  arguments.staged = std::move(staged);
}

}  // namespace

template <class T>
T CallStaging::take_or_throw(Result<T> result, std::string_view operation) const {
  if (result.ok()) return std::move(*result);
  ErrorInfo info = group_.failure(result.error().kind, std::string(operation) + ": " + result.error().message);
  info.operation = operation;
  throw Error(std::move(info));
}

// A broadcast's receivers do not read their buffer, although it is their input as well.
engine::StagedCall::Buffers CallStaging::used_buffers(const CollectiveCall& call,
                                                      const engine::ResolvedCall& resolved) const {
  const int world = group_.size();
  const std::uint64_t element = element_bytes(resolved.type);
  const bool reads = resolved.collective != Collective::broadcast || resolved.root == group_.rank;
  return {.input = static_cast<const std::byte*>(call.input),
          .input_bytes = reads ? engine::input_elements(resolved, world, group_.rank) * element : 0,
          .output = static_cast<std::byte*>(call.output),
          .output_bytes = engine::output_elements(resolved, world, group_.rank) * element};
}

MemoryKind CallStaging::memory_of(const CollectiveCall& call, const engine::ResolvedCall& resolved) const {
  return take_or_throw(devices_.kind_of(*call.options.stream, named(used_buffers(call, resolved))),
                       to_string(call.collective));
}

void CallStaging::stage(CallArguments& arguments, const CollectiveCall& call) const {
  const engine::ResolvedCall& resolved = arguments.plan->call();
  attach(arguments, take_or_throw(devices_.begin(*call.options.stream, used_buffers(call, resolved), resolved.memory),
                                  to_string(call.collective)));
}

void CallStaging::stage(CallArguments& arguments, const MessageCall& call) const {
  const std::string_view name = call.incoming ? "recv" : "send";
  Buffers buffers{.input = arguments.input, .output = arguments.output};
  (call.incoming ? buffers.output_bytes : buffers.input_bytes) = call.count * element_bytes(call.type);
  const MemoryKind kind = take_or_throw(devices_.kind_of(*call.options.stream, named(buffers)), name);
  attach(arguments, take_or_throw(devices_.begin(*call.options.stream, buffers, kind), name));
}

// Device memory is written only once the call has ended well.
void CallStaging::keep_input(CallArguments& arguments, const CollectiveCall& call) const {
  const engine::ExecutablePlan& plan = *arguments.plan;
  const bool reads = call.collective != Collective::broadcast || plan.call().root == group_.rank;
  const bool is_on_host = !call.options.stream || plan.call().memory != MemoryKind::device;
  if (reads && is_on_host) arguments.kept = {kept_inputs_, plan, arguments.input, arguments.output};
}

}  // namespace qccl::comm
