// Shared by codecs with rounding=nearest|stochastic: the setting, and the kernels' random stream of a Draw.
#pragma once

#include "codec/draw.h"
#include "codec/registry.h"
#include "kernels/lanes/random.h"

namespace qccl {

// In the order of enum Rounding.
inline constexpr CodecSetting kRoundingSetting = {
    .key = "rounding",
    .allowed = "nearest|stochastic",
    .default_value = 0,
    .meaning = "stochastic: up or down at random so that the mean is right, stratified over ranks",
    .quiet_if_default = true,
};

inline bool is_stochastic(const SettingValues& values) { return values.word("rounding") == "stochastic"; }

inline kernels::RandomStream random_stream(const Draw& draw) {
  return {.key = draw.key, .first_element = draw.first_element, .rank = draw.rank, .world = draw.world};
}

}  // namespace qccl
