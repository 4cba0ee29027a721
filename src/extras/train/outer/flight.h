// The round in flight of an OuterLoop: what is sent, received and owed.
#pragma once

#include <cstdint>
#include <vector>

#include "extras/train/outer/control.h"
#include "qccl/error_feedback.h"
#include "qccl/work.h"

namespace qccl::train {

struct OuterFlight {
  bool is_posted = false;
  std::vector<std::uint64_t> posted_in;  // numbers of groups
  double delta_norm = 0;                 // of this rank
  std::vector<float> sent, received;
  OuterControl control;
  ErrorFeedback feedback;
  std::vector<Work> works;

  // Until the calls have ended, even with an error: the first one is thrown, and the round is to be posted again.
  void wait();
  // The round ended with a call of this rank's that failed here, and was the `counter`th with the feedback.
  void redo_feedback(std::uint64_t counter, std::uint64_t in_group);
};

}  // namespace qccl::train
