#include "support/ptx/launch.h"

#include <cstring>

#include "support/ptx/assembler.h"

namespace qccl::ptx {

Module::Module(const std::string& text) : program_(assemble(text)) {}

const Entry& Module::find(const std::string& entry) const {
  const auto found = program_.entries.find(entry);
  if (found == program_.entries.end()) throw Fault("the module has no entry " + entry);
  return found->second;
}

std::vector<std::vector<std::byte>> Module::parameters_of(const std::string& entry, void* const* values) const {
  std::vector<std::vector<std::byte>> result;
  for (const Parameter& parameter : find(entry).parameters) {
    const auto* const bytes = static_cast<const std::byte*>(*values++);
    result.emplace_back(bytes, bytes + parameter.bytes);
  }
  return result;
}

std::unique_ptr<Warp> Module::take_warp() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Warp>(program_);
  std::unique_ptr<Warp> warp = std::move(idle_.back());
  idle_.pop_back();
  return warp;
}

Counts Module::launch(const std::string& entry, const std::vector<std::vector<std::byte>>& parameters, const Grid& grid,
                      GlobalMemory& global) {
  const Entry& begin = find(entry);
  TrackedMemory shared("shared", begin.shared_bytes);
  std::unique_ptr<Warp> warp = take_warp();
  warp->start(begin, parameters);
  try {
    for (std::uint32_t block = grid.blocks; block-- > 0;) {
      shared.forget();
      for (std::uint32_t thread = grid.threads; thread > 0;) {
        thread -= kLanes;
        warp->run({{block, grid.blocks, thread, grid.threads}, grid.order, {&shared, &global}});
      }
    }
  } catch (const Fault& fault) {
    throw Fault(entry + ": " + fault.what());
  }
  const Counts counts = warp->counts();
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(warp));
  return counts;
}

}  // namespace qccl::ptx
