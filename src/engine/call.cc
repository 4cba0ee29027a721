#include "engine/call.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "base/options.h"

namespace qccl::engine {

std::uint64_t Call::fingerprint() const {
  const std::uint64_t parts[] = {static_cast<std::uint64_t>(collective),
                                 count,
                                 static_cast<std::uint64_t>(type),
                                 static_cast<std::uint64_t>(op),
                                 static_cast<std::uint64_t>(root),
                                 static_cast<std::uint64_t>(algorithm),
                                 static_cast<std::uint64_t>(board),
                                 static_cast<std::uint64_t>(slice_bytes),
                                 static_cast<std::uint64_t>(compression.kind),
                                 static_cast<std::uint64_t>(compression.bits),
                                 static_cast<std::uint64_t>(compression.bucket_size),
                                 static_cast<std::uint64_t>(compression.wire)};
  std::uint64_t value = digest({reinterpret_cast<const char*>(parts), sizeof(parts)}, 0x7143434CULL);
  if (region != 0) value = digest(region_offset, digest(region, value));
  return value;
}

std::string Call::describe() const {
  const bool usual = slice_bytes == 0 || slice_bytes == kDefaultSliceBytes;
  const std::string slices = usual ? "" : fmt::format("slice_bytes={}", slice_bytes);
  if (collective == Collective::barrier) return fmt::format("barrier({})", slices);
  std::string text = fmt::format("{}(count={}, {}", to_string(collective), count, to_string(type));
  if (collective == Collective::all_reduce || collective == Collective::reduce_scatter) {
    text += fmt::format(", {}", to_string(op));
  }
  if (collective == Collective::broadcast) text += fmt::format(", root={}", root);
  if (algorithm != Algorithm::one_shot) text += fmt::format(", {}", to_string(algorithm));
  if (compression.kind != Compression::Kind::none) text += ", " + compression.to_string();
  if (region != 0) text += fmt::format(", byte {} of shared buffer {}", region_offset, region);
  if (!usual) text += ", " + slices;
  return text + ")";
}

std::uint64_t input_elements(const Call& call, int world) {
  const auto ranks = static_cast<std::uint64_t>(world);
  return call.collective == Collective::reduce_scatter ? call.count * ranks : call.count;
}

std::uint64_t output_elements(const Call& call, int world) {
  const auto ranks = static_cast<std::uint64_t>(world);
  return call.collective == Collective::all_gather ? call.count * ranks : call.count;
}

}  // namespace qccl::engine
