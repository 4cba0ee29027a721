#include "support/fake_cuda/fake_ptx.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "base/options.h"
#include "support/fake_cuda/fake_driver.h"

namespace qccl::device::fake {
namespace {

// The first bytes of a fat binary and of a cubin.
constexpr std::string_view kFatBinary = "\x50\xed\x55\xba";
constexpr std::string_view kCubin =
    "\x7f"
    "ELF";

// Memory that a kernel may touch: what is allocated on the device, pinned or registered. Kept alive while it runs.
class DeviceMemoryOfLaunch : public ptx::GlobalMemory {
 public:
  std::byte* at(std::uint64_t address, std::size_t bytes, bool writes) override {
    if (!contains(last_, address, bytes)) last_ = find(address, bytes);
    if (writes) {
      last_->note_written(address, bytes);
    } else if (!last_->is_written(address, bytes)) {
      throw ptx::Fault("device memory is read before anything is written there: " + std::to_string(bytes) +
                       " bytes at " + std::to_string(last_->offset_of(address)) + " of an allocation of " +
                       std::to_string(last_->bytes));
    }
    return last_->storage_of(address);
  }

 private:
  static bool contains(const Allocation* allocation, std::uint64_t address, std::size_t bytes) {
    if (allocation == nullptr) return false;
    const auto begin = reinterpret_cast<DevicePointer>(allocation->address);
    return address >= begin && address - begin <= allocation->bytes && bytes <= allocation->bytes - (address - begin);
  }

  Allocation* find(std::uint64_t address, std::size_t bytes) {
    const auto known =
        std::ranges::find_if(used_, [&](const auto& allocation) { return contains(allocation.get(), address, bytes); });
    if (known != used_.end()) return known->get();
    auto found = driver().find(reinterpret_cast<const void*>(address), bytes);
    if (found == nullptr)
      throw ptx::Fault("memory that is not the device's or pinned: address " + std::to_string(address));
    used_.push_back(std::move(found));
    return used_.back().get();
  }

  std::vector<std::shared_ptr<Allocation>> used_;
  Allocation* last_ = nullptr;
};

}  // namespace

void CompiledLaunch::run() const {
  DeviceMemoryOfLaunch memory;
  try {
    module->launch(entry, parameters, grid, memory);
  } catch (const ptx::Fault& fault) {
    static_cast<void>(driver().faults.misuse(fault.what()));
  }
}

std::shared_ptr<ptx::Module> compiled_module(const void* image, Code& code) {
  static std::mutex mutex;
  static auto* const last = new std::pair<std::string, std::shared_ptr<ptx::Module>>;  // a process mostly has one
  const auto* const text = static_cast<const char*>(image);
  const auto begins = [&](std::string_view word) { return std::strncmp(text, word.data(), word.size()) == 0; };
  if (environment("FAKE_CUDA_KERNELS") == "host") return nullptr;
  if (begins(kFatBinary) || begins(kCubin)) {
    code = Code::no_binary_for_gpu;
    return nullptr;
  }
  if (!begins("//") && !begins(".version")) return nullptr;
  const std::lock_guard lock(mutex);
  if (last->first == text) return last->second;
  try {
    *last = {text, std::make_shared<ptx::Module>(text)};
  } catch (const ptx::Fault& fault) {
    code = driver().faults.misuse(fault.what());
    return nullptr;
  }
  return last->second;
}

}  // namespace qccl::device::fake
