#include "extras/train/outer/flight.h"

#include <algorithm>
#include <optional>

#include "qccl/error.h"

namespace qccl::train {

void OuterFlight::wait() {
  std::optional<Error> failure;
  for (const Work& work : works) {
    try {
      work.wait();
    } catch (const Error& error) {
      if (!failure) failure = error;
    }
  }
  works.clear();
  is_posted = false;
  if (failure) throw Error(*failure);
}

void OuterFlight::redo_feedback(std::uint64_t counter, std::uint64_t in_group) {
  if (feedback.is_none()) return;
  if (posted_in.back() == in_group) return feedback.settle(counter);
  // It was posted again since. What compression had left out in that group is not known any more.
  std::ranges::fill(feedback.residual(), 0.0F);
}

}  // namespace qccl::train
