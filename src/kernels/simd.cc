#include "kernels/simd.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/options.h"

// Highway compiles for this target only on request. Kernels that gain from it request it too; all others run on plain
// AVX-512 under its name.
#define HWY_WANT_AVX3_DL 1

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/simd_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

std::int64_t compiled_target() { return HWY_TARGET; }

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qccl::kernels {

HWY_EXPORT(compiled_target);

namespace {

const char* name_of(std::int64_t target) {
  switch (target) {
    case HWY_SCALAR:
    case HWY_EMU128: return "scalar";
#if HWY_ARCH_X86
    case HWY_SSE4: return "sse4";
    case HWY_AVX2: return "avx2";
    case HWY_AVX3: return "avx512";
    case HWY_AVX3_DL: return "avx512vbmi2";
#endif
    default: return hwy::TargetName(target);
  }
}

// Queried once, because under a virtual machine the hypervisor answers for the processor, in some 20 us.
const std::vector<std::int64_t>& runnable_targets() {
  static const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return targets;
}

// All compiled targets of this name that the machine can run, plus all narrower ones for kernels that are not compiled
// for these; 0 if none has the name.
std::int64_t targets_named(std::string_view name) {
  std::int64_t mask = 0;
  for (const std::int64_t target : runnable_targets()) {
    if (mask != 0 || name == name_of(target)) mask |= target;
  }
  return mask;
}

bool choose(hwy::ChosenTarget& chosen, std::string_view name) {
  const std::int64_t mask = targets_named(name);
  if (mask == 0 && name != "scalar") return false;
  chosen.Update(mask);
  return true;
}

}  // namespace

hwy::ChosenTarget& chosen_simd() {
  static hwy::ChosenTarget chosen;
  static const bool ready = choose(chosen, accepted_simd(environment("QCCL_SIMD").value_or(simd_targets()[0].data())));
  static_cast<void>(ready);
  return chosen;
}

std::vector<std::string_view> simd_targets() {
  std::vector<std::string_view> names;
  for (const std::int64_t target : runnable_targets()) {
    const std::string_view name = name_of(target);
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  if (names.empty() || names.back() != "scalar") names.push_back("scalar");
  return names;
}

bool force_simd(std::string_view name) { return choose(chosen_simd(), name); }

const char* simd_target() { return name_of(QCCL_DISPATCH(compiled_target)()); }

std::string_view accepted_simd(std::string_view text) {
  const std::vector<std::string_view> allowed = simd_targets();
  if (const auto found = std::find(allowed.begin(), allowed.end(), text); found != allowed.end()) return *found;
  log(LogLevel::warning, fmt::format("QCCL_SIMD={} is none of those that this build and machine have ({}): using {}",
                                     text, fmt::join(allowed, ", "), allowed.front()));
  return allowed.front();
}

}  // namespace qccl::kernels
#endif  // HWY_ONCE
