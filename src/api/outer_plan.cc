// The public plan_outer(): prices of calls between hosts of one rank each.
#include "qccl/outer_plan.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/options.h"
#include "codec/codec.h"
#include "codec/geometry.h"
#include "plan/cost/outer_rows.h"

namespace qccl::train {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw Error({.kind = ErrorKind::invalid_argument, .message = "QCCL: outer plan: " + what});
}

void check(const OuterPlanOptions& options) {
  require(options.parameters >= 1, "there are no parameters");
  require(options.parameters <= 1ull << 45, fmt::format("{} parameters are more than 2^45", options.parameters));
  require(options.ranks >= 1, fmt::format("{} ranks can't train", options.ranks));
  require(options.ranks <= 4096, fmt::format("{} ranks are more than 4096", options.ranks));
  require(options.step_seconds > 0 && std::isfinite(options.step_seconds),
          fmt::format("a step takes more than 0 seconds, not {}", options.step_seconds));
  require(options.computing >= 0 && options.computing <= 1,
          fmt::format("computing is a share of the time, 0 to 1, not {}", options.computing));
  require(options.rate > 0 && std::isfinite(options.rate),
          fmt::format("a line of {} bytes a second carries nothing", options.rate));
  require(options.latency >= 0 && std::isfinite(options.latency),
          fmt::format("a latency of {} seconds is below 0", options.latency));
}

plan::MachineModel links_of(const OuterPlanOptions& options, const std::string& compression) {
  plan::MachineModel links = plan::links_of(plan::default_profile(), compression);
  links.wire_rate = options.rate;
  links.wire.latency = options.latency;
  if (options.ranks > 1)
    links.window_bytes = plan::window_of(options.rate, 2 * options.latency, plan::kMostWindowBytes);
  return links;
}

plan::SelectionKey key_of(const Codec* codec, std::uint64_t elements, std::size_t most_slice_bytes) {
  plan::SelectionKey key{
      .elements = elements,
      .slice_elements = slice_elements(codec, DataType::float32, kDefaultSliceBytes, most_slice_bytes)};
  if (codec == nullptr) return key;
  key.compressed = true;
  key.bucket_size = codec->bucket_size();
  key.encoded_bytes = expected_element_bytes(codec, DataType::float32, key.slice_elements);
  return key;
}

}  // namespace

std::vector<OuterPlanRow> plan_outer(const OuterPlanOptions& options) {
  check(options);
  plan::Layout layout;
  layout.hosts.resize(static_cast<std::size_t>(options.ranks));
  std::iota(layout.hosts.begin(), layout.hosts.end(), 0);
  return plan::outer_rows(options, [&](const std::string& compression, std::uint64_t elements) {
    const Compression parsed = Compression::parse(compression);
    const plan::MachineModel links = links_of(options, parsed.to_string());
    const std::size_t most = plan::most_slice_bytes(links.window_bytes, options.ranks);
    const plan::SelectionKey key = key_of(make_codec(parsed).take_or_throw().get(), elements, most);
    return plan::price_of_round(parsed, key, layout, links);
  });
}

}  // namespace qccl::train
