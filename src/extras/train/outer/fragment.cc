#include "extras/train/outer/fragment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>

#include "base/bytes.h"

namespace qccl::train {

std::string_view layer_of(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view word = name.substr(begin, end - begin);
    const bool is_number = !word.empty() && std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c); });
    if (is_number) return name.substr(0, end);
    begin = end + 1;
  }
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(0, dot);
}

std::size_t count_layers(std::span<const std::string> names) {
  std::set<std::string_view> layers;
  for (const std::string& name : names) layers.insert(layer_of(name));
  return layers.size();
}

std::vector<std::vector<std::size_t>> fragment_members(const std::vector<OuterParameter>& parameters,
                                                       std::size_t fragments) {
  std::vector<std::string_view> layers;
  std::vector<std::vector<std::size_t>> members(fragments);
  for (const bool averaged : {false, true}) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].is_averaged != averaged) continue;
      const std::string_view layer = layer_of(parameters[i].name);
      const auto found = std::ranges::find(layers, layer);
      const auto index = static_cast<std::size_t>(found - layers.begin());
      if (found == layers.end()) layers.push_back(layer);
      members[index % fragments].push_back(i);
    }
  }
  if (layers.size() >= fragments) return members;
  throw Error({.kind = ErrorKind::invalid_argument,
               .message = fmt::format("QCCL: outer loop: {} fragments of {} layers: use at most as many fragments as "
                                      "layers",
                                      fragments, layers.size())});
}

// ---- Residual

void Residual::resize(std::size_t count, bool as_bfloat16) {
  if (as_bfloat16) {
    half_.resize(count);
  } else {
    single_.resize(count);
  }
}

void Residual::read(std::span<float> to, float factor) const {
  for (std::size_t i = 0; i < single_.size(); ++i) to[i] = factor * single_[i];
  for (std::size_t i = 0; i < half_.size(); ++i) to[i] = factor * to_float(half_[i]);
}

void Residual::write(std::span<const float> from) {
  std::copy_n(from.begin(), single_.size(), single_.begin());
  std::transform(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(half_.size()), half_.begin(), to_bfloat16);
}

void Residual::clear() {
  std::ranges::fill(single_, 0.0F);
  std::ranges::fill(half_, bfloat16{});
}

// ---- OuterSgd

OuterSgd::OuterSgd(const OuterSgdOptions& options) : options_(options) {}

void OuterSgd::step(std::size_t fragment, std::span<float> global, std::span<const float> gradient) {
  const auto rate = static_cast<float>(options_.learning_rate);
  if (options_.momentum == 0) {
    for (std::size_t i = 0; i < global.size(); ++i) global[i] -= rate * gradient[i];
    return;
  }
  if (momentum_.size() <= fragment) momentum_.resize(fragment + 1);
  std::vector<float>& momentum = momentum_[fragment];
  momentum.resize(global.size());
  const auto factor = static_cast<float>(options_.momentum);
  for (std::size_t i = 0; i < global.size(); ++i) {
    momentum[i] = factor * momentum[i] + gradient[i];
    global[i] -= rate * (options_.nesterov ? gradient[i] + factor * momentum[i] : momentum[i]);
  }
}

std::string OuterSgd::settings() const {
  return fmt::format("sgd {} {} {}", options_.learning_rate, options_.momentum, options_.nesterov);
}

std::vector<std::byte> OuterSgd::save(std::size_t fragment) const {
  if (fragment >= momentum_.size()) return {};
  const auto bytes = std::as_bytes(std::span(momentum_[fragment]));
  return {bytes.begin(), bytes.end()};
}

void OuterSgd::load(std::size_t fragment, std::span<const std::byte> saved) {
  if (momentum_.size() <= fragment) momentum_.resize(fragment + 1);
  momentum_[fragment].resize(saved.size() / sizeof(float));
  if (!saved.empty()) std::memcpy(momentum_[fragment].data(), saved.data(), momentum_[fragment].size() * sizeof(float));
}

}  // namespace qccl::train
