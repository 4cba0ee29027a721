#include "group/call_staging.h"

#include <array>

#include "device_engine/devices.h"
#include "job/call_memory.h"
#include "plan/plan.h"

namespace qccl::comm {
namespace {

using engine::CallArguments;
using engine::DeviceBuffers;
using engine::MemoryKind;
using engine::ResolvedCall;
using engine::UsedBuffer;

std::array<UsedBuffer, 2> named(const DeviceBuffers& buffers) {
  return {UsedBuffer{"input", buffers.input, buffers.input_bytes},
          UsedBuffer{"output", buffers.output, buffers.output_bytes}};
}

bool overwrite_input(const DeviceBuffers& buffers) {
  return buffers.input < buffers.output + buffers.output_bytes && buffers.output < buffers.input + buffers.input_bytes;
}

void attach(CallArguments& arguments, engine::DevicePartPtr device) {
  arguments.input = device->input();
  arguments.output = device->output();
  arguments.device = std::move(device);
}

}  // namespace

CallStaging::CallStaging(const GroupIdentity& group, CallMemory& memory, std::size_t slice_bytes)
    : group_(group), devices_(*memory.devices), kept_inputs_(memory.kept_inputs), slice_bytes_(slice_bytes) {}

template <class T>
T CallStaging::take_or_throw(Result<T> result, std::string_view operation) const {
  if (result.ok()) return std::move(*result);
  ErrorInfo info = group_.failure(result.error().kind, std::string(operation) + ": " + result.error().message);
  info.operation = operation;
  throw Error(std::move(info));
}

// A broadcast's receivers do not read their buffer, although it is their input as well.
DeviceBuffers CallStaging::used_buffers(const CollectiveCall& call, const ResolvedCall& resolved) const {
  const int world = group_.size();
  const std::uint64_t element = element_bytes(resolved.type);
  const bool reads = resolved.collective != Collective::broadcast || resolved.root == group_.rank;
  return {.input = static_cast<const std::byte*>(input_of(call)),
          .input_bytes = reads ? engine::input_elements(resolved, world, group_.rank) * element : 0,
          .output = static_cast<std::byte*>(call.output),
          .output_bytes = engine::output_elements(resolved, world, group_.rank) * element};
}

// Plans that add all parts at one place have a device read and write each element once.
void CallStaging::place(const CollectiveCall& call, ResolvedCall& resolved, bool may_choose) const {
  resolved.memory = take_or_throw(devices_.kind_of(*call.options.stream, named(used_buffers(call, resolved))),
                                  to_string(call.collective));
  if (resolved.memory != MemoryKind::device) return;
  resolved.slice_bytes = slice_bytes_;
  const bool is_long = resolved.count * element_bytes(resolved.type) > engine::Devices::kShortBytes;
  const bool has_choice = may_choose && plan::has_algorithm(resolved.collective, Algorithm::sra);
  if (has_choice && is_long && resolved.algorithm != Algorithm::hierarchical) resolved.algorithm = Algorithm::sra;
}

void CallStaging::stage(CallArguments& arguments, const CollectiveCall& call) const {
  const engine::ExecutablePlan& plan = *arguments.plan;
  const engine::ComputedCall computed{.plan = plan,
                                      .world = group_.size(),
                                      .feedback = arguments.feedback.get(),
                                      .keeps_input = call.options.keep_input};
  auto device = devices_.begin(*call.options.stream, used_buffers(call, plan.call()), plan.call().memory, &computed);
  attach(arguments, take_or_throw(std::move(device), to_string(call.collective)));
}

void CallStaging::bring_home(internal::FeedbackState& feedback, std::string_view operation) const {
  if (feedback.is_busy()) return;
  Status home = feedback.bring_home();
  if (!home.ok()) take_or_throw(Result<bool>(home.failure()), operation);
}

void CallStaging::stage(CallArguments& arguments, const MessageCall& call) const {
  const std::string_view name = call.incoming ? "recv" : "send";
  DeviceBuffers buffers{.input = arguments.input, .output = arguments.output};
  (call.incoming ? buffers.output_bytes : buffers.input_bytes) = call.count * element_bytes(call.type);
  const MemoryKind kind = take_or_throw(devices_.kind_of(*call.options.stream, named(buffers)), name);
  attach(arguments, take_or_throw(devices_.begin(*call.options.stream, buffers, kind, nullptr), name));
}

// The memory of a device is written only once the call has ended well: the host computes it.
void CallStaging::keep_input(CallArguments& arguments, const CollectiveCall& call) const {
  const engine::ExecutablePlan& plan = *arguments.plan;
  const bool reads = call.collective != Collective::broadcast || plan.call().root == group_.rank;
  const bool is_on_host = !call.options.stream || plan.call().memory != MemoryKind::device;
  arguments.keeps_input = overwrite_input(used_buffers(call, plan.call()));
  if (reads && is_on_host) arguments.kept = {kept_inputs_, plan, arguments.input, arguments.output};
}

}  // namespace qccl::comm
