#include "device_engine/lanes/device_compute.h"

#include <utility>

#include "device_engine/lanes/device_steps.h"

namespace qccl::engine {

DeviceCompute::DeviceCompute(const ComputeContext& context)
    : seed_(context.seed),
      call_{.plan = context.plan,
            .layout = *DeviceLayout::of(*context.plan, context.world),
            .world = context.world,
            .divisor = divisor_of(context.plan->call(), context.world),
            .rank = context.rank,
            .format = {}} {
  const Codec* const codec = call_.plan->codec();
  if (codec != nullptr) call_.format = *codec->device_format();
  const std::size_t lanes = call_.layout.lanes().size();
  lanes_.reserve(lanes);
  while (lanes_.size() < lanes) lanes_.emplace_back(call_, lanes_.size());
}

void DeviceCompute::begin(const CallArguments& arguments) {
  call_.arguments = &arguments;
  call_.staged = static_cast<StagedCall*>(arguments.device.get());
  call_.keys = PhaseKeys(seed_, arguments.random_counter.value_or(0));
  call_.feedback = nullptr;
  call_.kept = {};
  if (arguments.feedback != nullptr) {
    call_.feedback = static_cast<DeviceFeedback*>(arguments.feedback->on_device());
    call_.feedback->begin();
  }
  for (DeviceLane& lane : lanes_) lane.begin();
}

// If the call came to all elements, the other side becomes the state after it, for settle().
void DeviceCompute::take_back() {
  if (call_.feedback == nullptr) return;
  call_.arguments->feedback->is_saved() ? call_.feedback->swap() : call_.feedback->take_back();
}

Outgoing DeviceCompute::outgoing(std::size_t lane, std::size_t, GroupRank) {
  const ConstBytes received = lanes_[lane].arrivals().last();
  return {received, received.size()};
}

Status DeviceCompute::local(std::size_t lane, std::size_t step) {
  lanes_[lane].local(step);
  return {};
}

std::unique_ptr<DeferredSteps> DeviceCompute::defer(InboundStreams& inbound, OutboundStreams& outbound) {
  return std::make_unique<DeviceSteps>(*call_.plan, *this, inbound, outbound);
}

Result<bool> DeviceCompute::look() { return call_.staged->jobs().look(); }
Status DeviceCompute::submit() {
  QCCL_TRY(std::exchange(call_.kept, {}));
  return call_.staged->jobs().submit();
}
bool DeviceCompute::is_idle() const { return call_.staged->jobs().is_idle(); }

}  // namespace qccl::engine
