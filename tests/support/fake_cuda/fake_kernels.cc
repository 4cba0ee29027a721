#include "support/fake_cuda/fake_kernels.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/device/host_launcher.h"
#include "support/fake_cuda/fake_driver.h"
#include "support/fake_cuda/fake_ptx.h"

namespace qccl::device::fake {
namespace {

using kernels::device::Entry;
using kernels::device::JobList;
using kernels::device::kEntryNames;
using kernels::device::kGroups;
using kernels::device::SliceJob;
using kernels::device::Source;

// Replaces addresses by where their bytes are, and keeps those alive.
class Translation {
 public:
  // False if the device may not touch the memory. Null stays null.
  template <class T>
  bool translate(T*& pointer, std::size_t bytes) {
    if (pointer == nullptr || bytes == 0) return true;
    auto found = driver().find(pointer, bytes);
    if (found == nullptr) return false;
    is_registered_ = found->kind == Kind::registered;
    const auto offset = reinterpret_cast<const std::byte*>(pointer) - found->address;
    pointer = reinterpret_cast<T*>(found->storage + offset);
    allocations_.push_back(std::move(found));
    return true;
  }

  // A source, whose headers may have to say how much of it there is.
  bool translate(const SliceJob& job, Source& source) {
    std::size_t bytes = source_bytes(job, source.kind);
    if (job.format.kind == kernels::device::PayloadKind::grid && source.kind == kernels::device::SourceKind::payload) {
      const void* payload = source.data;
      const auto format = grid_format(job.format);
      if (!translate(payload, kernels::grid_step_bytes(format, job.count) + kernels::grid_form_bytes(job.count))) {
        return false;
      }
      bytes = payload_bytes(job, payload);
    }
    return translate(source.data, bytes);
  }

  bool translate(SliceJob& job) {
    const std::size_t floats = std::size_t{job.count} * sizeof(float);
    bool known = translate(job.output, source_bytes(job, kernels::device::SourceKind::elements)) &&
                 translate(job.sum, floats) && translate(job.residual, floats);
    RegisteredUses uses;
    for (std::size_t i = 0; i < job.source_count; ++i) {
      known = known && translate(job, job.sources[i]);
      uses.read += is_registered_ ? 1 : 0;
    }
    for (std::size_t i = 0; i < job.payload_count; ++i) {
      known = known && translate(job.payloads[i], payload_bytes(job));
      uses.written += is_registered_ ? 1 : 0;
    }
    driver().modules.count_registered(uses);
    return known;
  }

 private:
  bool is_registered_ = false;  // the last one
  std::vector<std::shared_ptr<Allocation>> allocations_;
};

struct Range {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;

  bool overlaps(const Range& other) const { return begin < other.begin + other.bytes && other.begin < begin + bytes; }
};

struct Uses {
  std::vector<Range> read, written;

  explicit Uses(const SliceJob& job) {
    const std::size_t floats = std::size_t{job.count} * sizeof(float);
    const auto add = [](std::vector<Range>& ranges, const void* memory, std::size_t bytes) {
      if (memory != nullptr && bytes > 0) ranges.push_back({static_cast<const std::byte*>(memory), bytes});
    };
    for (std::size_t i = 0; i < job.source_count; ++i) {
      const Source& source = job.sources[i];
      const bool is_payload = source.kind == kernels::device::SourceKind::payload;
      add(read, source.data, is_payload ? payload_bytes(job, source.data) : source_bytes(job, source.kind));
    }
    add(read, job.residual, floats);
    if (job.keeps_residual) add(written, job.residual, floats);
    add(written, job.output, source_bytes(job, kernels::device::SourceKind::elements));
    add(written, job.sum, floats);
    for (std::size_t i = 0; i < job.payload_count; ++i) add(written, job.payloads[i], payload_bytes(job));
  }

  bool disturb(const Uses& other) const {
    return std::ranges::any_of(written, [&](const Range& own) {
      const auto overlaps = [&](const Range& each) { return own.overlaps(each); };
      return std::ranges::any_of(other.read, overlaps) || std::ranges::any_of(other.written, overlaps);
    });
  }
};

// Jobs of one launch run at the same time.
bool any_disturb(const std::vector<SliceJob>& jobs) {
  const std::vector<Uses> uses(jobs.begin(), jobs.end());
  for (std::size_t a = 0; a < uses.size(); ++a) {
    for (std::size_t b = 0; b < uses.size(); ++b) {
      if (a != b && uses[a].disturb(uses[b])) return true;
    }
  }
  return false;
}

// A launch's jobs, whose memory is checked and translated. A device may run them in any order: they begin with the
// last. Empty if something is wrong.
std::vector<SliceJob> translated(Translation& translation, Entry entry, const JobList& list) {
  std::vector<SliceJob> copied(std::reverse_iterator(list.jobs + list.count), std::reverse_iterator(list.jobs));
  for (SliceJob& job : copied) {
    const Entry own = kernels::device::entry(job);
    const bool fits = own == entry || (own == Entry::grid && entry == Entry::grid_forms);
    if (!fits) static_cast<void>(driver().faults.misuse("a job is launched on another kernel than its own"));
    const bool known = translation.translate(job);
    if (!known) static_cast<void>(driver().faults.misuse("a job names memory that is not the device's or pinned"));
    if (!fits || !known) return {};
  }
  if (any_disturb(copied))
    static_cast<void>(driver().faults.misuse("a job of a launch writes what another one of it uses"));
  return copied;
}

// In the stream's thread.
void run(Entry entry, const JobList& list, unsigned int blocks) {
  Translation translation;
  const std::vector<SliceJob> jobs = translated(translation, entry, list);
  kernels::device::run_on_host(entry, jobs.data(), static_cast<std::uint32_t>(jobs.size()), blocks * kGroups);
}

void run_compiled(Entry entry, const JobList& list, const CompiledLaunch& launch) {
  Translation checked;
  if (list.count == 0 || !translated(checked, entry, list).empty()) launch.run();
}

}  // namespace

Code module_load_data(CUmod_st** module, const void* image) {
  int device = 0;
  if (const Code code = driver().begin("cuModuleLoadData", device); code != Code::success) return code;
  if (image == nullptr) return driver().faults.misuse("cuModuleLoadData of no image");
  Code code = Code::success;
  const std::shared_ptr<ptx::Module> compiled = compiled_module(image, code);
  if (code != Code::success) return code;
  *module = driver().modules.make_module(image, compiled);
  return Code::success;
}

Code module_unload(CUmod_st* module) {
  return driver().give_back("cuModuleUnload", "no module", [&](int) { return driver().modules.destroy(module); });
}

Code module_get_function(CUfunc_st** function, CUmod_st* module, const char* name) {
  int device = 0;
  if (const Code code = driver().begin("cuModuleGetFunction", device); code != Code::success) return code;
  if (!driver().modules.is_alive(module)) return driver().faults.misuse("cuModuleGetFunction of no module");
  const auto* const found = std::find(kEntryNames.begin(), kEntryNames.end(), std::string(name));
  if (found == kEntryNames.end()) return Code::not_found;
  *function = &module->functions[static_cast<std::size_t>(found - kEntryNames.begin())];
  return Code::success;
}

Code launch_kernel(CUfunc_st* function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                   CUstream_st* handle, void** parameters, void** extra) {
  Code code{};
  CUstream_st* const stream = driver().usable("cuLaunchKernel", handle, code);
  if (stream == nullptr) return code;
  const bool has_shape = grid_x > 0 && grid_y == 1 && grid_z == 1 && block_x == kernels::device::kThreads &&
                         block_y == 1 && block_z == 1 && shared_bytes == 0 && extra == nullptr;
  if (!has_shape) return driver().faults.misuse("cuLaunchKernel of another shape than the kernels have");
  driver().modules.count_launch();
  const JobList list = *static_cast<const JobList*>(parameters[0]);
  if (function->compiled == nullptr) {
    stream->add([entry = function->entry, list, grid_x] { run(entry, list, grid_x); });
    return Code::success;
  }
  const char* const name = kEntryNames[static_cast<std::size_t>(function->entry)];
  const CompiledLaunch launch{function->compiled,
                              name,
                              function->compiled->parameters_of(name, parameters),
                              {.blocks = grid_x, .threads = block_x}};
  stream->add([entry = function->entry, list, launch] { run_compiled(entry, list, launch); });
  return Code::success;
}

}  // namespace qccl::device::fake
