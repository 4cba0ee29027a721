#include "plan_layout.h"

#include <fmt/format.h>

#include <charconv>

#include "codec/slicing.h"
#include "plan_words.h"

namespace qccl::tools {
namespace {

// The input bytes of a slice, the library's default (QCCL_SLICE_BYTES).
constexpr std::size_t kSliceBytes = 128 * 1024;
// Of 1514 bytes of an Ethernet frame TCP with timestamps carries 1448.
constexpr double kWireEfficiency = 1448.0 / 1514.0;

// 0 if the text is no number from 1 on.
int number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? value : 0;
}

// Ranks in order, the first hosts with one more where they are not equally many.
std::vector<int> spread(int world, int hosts) {
  std::vector<int> host_of;
  for (int rank = 0; rank < world; ++rank) {
    host_of.push_back(static_cast<int>(static_cast<std::int64_t>(rank) * hosts / world));
  }
  return host_of;
}

std::optional<std::string> take_hosts(PlanLayout& layout) {
  const std::string& word = layout.hosts_word;
  const std::size_t cross = word.find('x');
  const bool has_each = cross != std::string::npos;
  const int hosts = number(word.substr(0, cross));
  const int each = has_each ? number(word.substr(cross + 1)) : 0;
  if (!word.empty() && (hosts == 0 || (has_each && each == 0))) {
    return fmt::format("--hosts {} is neither a number of hosts nor hosts x ranks, such as 2x4", word);
  }
  if (layout.world == 0) layout.world = hosts * each;
  if (layout.world == 0) return "--world says how many ranks there are";
  if (has_each && hosts * each != layout.world) {
    return fmt::format("--hosts {} are {} ranks, not {}", word, hosts * each, layout.world);
  }
  const int count = hosts > 0 ? hosts : layout.world;
  if (count > layout.world) return fmt::format("{} hosts are more than {} ranks", count, layout.world);
  layout.hosts = spread(layout.world, count);
  return std::nullopt;
}

bool has_pieces(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         collective == Collective::gather || collective == Collective::scatter || collective == Collective::all_to_all;
}

}  // namespace

plan::Links PlanLayout::links() const {
  return {.wire_rate = rate,
          .wire_efficiency = kWireEfficiency,
          .wire_latency = latency,
          .local_rate = local_rate,
          .local_latency = local_latency};
}

plan::Encoding PlanLayout::encoding() const {
  plan::Encoding encoding;
  if (codec == nullptr) return encoding;
  const std::uint64_t elements = slice_elements(codec.get(), DataType::float32, kSliceBytes);
  encoding.encoded_bytes = static_cast<double>(codec->max_encoded_bytes(elements)) / static_cast<double>(elements);
  return encoding;
}

void add_layout_flags(CLI::App& app, PlanLayout& layout) {
  app.add_option("--world", layout.world, "Ranks")->check(CLI::Range(1, 4096));
  app.add_option("--hosts", layout.hosts_word, "Hosts, as a number or with ranks each: 64, 2x4 (default: one a rank)");
  app.add_option("--rate", layout.rate, "Of a host's link, out and in (default 10gbit)")->transform(rate_word());
  app.add_option("--latency", layout.latency, "From host to host (default 50us)")->transform(time_word());
  app.add_option("--local-rate", layout.local_rate, "Of a rank to others of its host (default 40gbit)")
      ->transform(rate_word());
  app.add_option("--local-latency", layout.local_latency, "Inside a host (default 2us)")->transform(time_word());
  app.add_option("--compression", layout.compression_word, "none, cast:type=bf16, minmax:bits=4,bucket_size=1024");
}

std::optional<std::string> complete(PlanLayout& layout) {
  try {
    layout.compression = Compression::parse(layout.compression_word);
  } catch (const Error& error) {
    return error.what();
  }
  auto codec = make_codec(layout.compression);
  if (!codec.ok()) return codec.error().message;
  layout.codec = *codec;
  if (layout.rate <= 0 || layout.local_rate <= 0) return "a rate of 0 carries nothing";
  if (layout.latency < 0 || layout.local_latency < 0) return "a latency is not below 0";
  return take_hosts(layout);
}

plan::Request request_of(const PlanLayout& layout, Collective collective, Algorithm algorithm, std::uint64_t bytes) {
  const std::uint64_t elements = bytes / sizeof(float);
  const bool is_compressed = layout.codec != nullptr;
  const auto world = static_cast<std::uint64_t>(layout.world);
  return {.collective = collective,
          .algorithm = algorithm,
          .world = layout.world,
          .count = collective == Collective::barrier ? 0
                   : has_pieces(collective)          ? elements / world
                                                     : elements,
          .bucket_size = is_compressed ? layout.codec->bucket_size() : 1,
          .slice_elements = slice_elements(layout.codec.get(), DataType::float32, kSliceBytes),
          .compressed = is_compressed,
          .hosts = layout.hosts};
}

std::vector<plan::Role> roles_of(const plan::Request& request) {
  std::vector<plan::Role> roles;
  for (int rank = 0; rank < request.world; ++rank) roles.push_back(plan::make_role(request, rank));
  return roles;
}

std::optional<std::string> refusal(const PlanLayout& layout, Collective collective) {
  const bool can = is_reduction(collective) || collective == Collective::all_gather ||
                   collective == Collective::all_to_all || collective == Collective::broadcast;
  if (layout.codec == nullptr || can) return std::nullopt;
  return fmt::format("{} can't be compressed", to_string(collective));
}

std::string describe(const PlanLayout& layout) {
  return fmt::format("{} ranks on {} hosts, {:.4g} Gbit/s and {} between them, {:.4g} Gbit/s and {} inside",
                     layout.world, layout.host_count(), layout.rate * 8e-9, time_text(layout.latency),
                     layout.local_rate * 8e-9, time_text(layout.local_latency));
}

}  // namespace qccl::tools
