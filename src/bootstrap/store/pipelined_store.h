// A store with more than a Store has. It takes several requests before it answers the first, so that ranks far from it
// start in fewer round trips, and may write for a client that has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qccl/store.h"

namespace qccl::bootstrap {

// Keys and their values.
using Will = std::vector<std::pair<std::string, std::string>>;

// How a rank takes its place: add(counter, 1), and if the sum is 1, leave_will(will), set(card_key, card) and
// get(awaited_key, timeout).
struct ClaimRequest {
  std::string counter;
  std::string card_key;
  std::string card;
  std::string awaited_key;
  Will will{};
};

struct ClaimAnswer {
  std::int64_t count = 0;              // the counter's sum
  std::optional<std::string> awaited;  // empty if the sum is more than 1, or the key did not exist within the timeout
};

// All throw like the calls that they stand for. Where the store keeps the first value of a key, claim() may set the
// card and leave the will whatever the sum is.
class PipelinedStore : public Store {
 public:
  // add(key, 0) for each key.
  virtual std::vector<std::int64_t> counters(const std::vector<std::string>& keys) = 0;
  virtual ClaimAnswer claim(const ClaimRequest& request, std::chrono::milliseconds timeout) = 0;
  // Those of the keys that do not exist when this client's connection ends are set then, if the client may set them.
  // Replaces an earlier will; an empty one does nothing. Does nothing if the store does not know wills.
  virtual void leave_will(const Will& will) = 0;
  // Whether the store knows wills, for one that was reached.
  virtual bool knows_wills() const = 0;
};

// The calls one by one, over any store.
inline ClaimAnswer claim_in_steps(Store& store, const ClaimRequest& request, std::chrono::milliseconds timeout) {
  ClaimAnswer answer{.count = store.add(request.counter, 1), .awaited = {}};
  if (answer.count != 1) return answer;
  if (auto* pipelined = dynamic_cast<PipelinedStore*>(&store)) pipelined->leave_will(request.will);
  store.set(request.card_key, request.card);
  answer.awaited = store.get(request.awaited_key, timeout);
  return answer;
}

}  // namespace qccl::bootstrap
