// Policies: any text is either rejected with an InvalidArgument, or it is a policy whose own text means
// the same, and which chooses a compression for any tensor.
#include <optional>
#include <string_view>

#include "fuzz/fuzz.h"
#include "qccl/error.h"
#include "qccl/policy.h"

namespace {

std::optional<qccl::Policy> parsed(std::string_view text) {
  try {
    return qccl::Policy::parse(text);
  } catch (const qccl::Error& error) {
    qccl::fuzz::require(error.kind() == qccl::ErrorKind::invalid_argument, "a refusal is an InvalidArgument");
    return std::nullopt;
  }
}

}  // namespace

// Input: a byte each for the tensor's size, dimensions, type, name and for the step; then the policy.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qccl;
  fuzz::Input input(data, size);
  TensorInfo tensor;
  tensor.count = std::uint64_t{1} << input.byte() % 40;
  tensor.dimensions = input.byte() % 6;
  tensor.type = static_cast<DataType>(input.byte() % 13);
  const std::string name = std::string(input.byte() % 16, 'a') + ".weight";
  tensor.name = name;
  const std::uint64_t step = std::uint64_t{1} << input.byte() % 64;
  const std::string_view text(reinterpret_cast<const char*>(input.rest().data()), input.rest().size());
  const auto policy = parsed(text);
  if (!policy) return 0;
  const auto again = parsed(policy->to_string());
  fuzz::require(again && *again == *policy, "the text of a policy reads back to it");
  const Compression chosen = policy->choose(tensor, step);
  fuzz::require(chosen == policy->choose(tensor, step), "a choice is always the same");
  fuzz::require(Compression::parse(chosen.to_string()) == chosen, "and it is a compression");
  return 0;
}
