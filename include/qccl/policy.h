// Chooses the compression of a training tensor at each step, by its name, size, dimensions and type. A value:
// comparable, printable, parsed from text.
//
//   "warmup=100; name=*.embed* minmax:bits=8; minmax:bits=8 @1000 minmax:bits=4"
//
// Semicolons separate the rules, and the first rule that fits a tensor applies. A rule is any of these conditions
// followed by a compression:
//
//   name=GLOB|GLOB    the whole name; * stands for any characters, ? for one
//   bytes=64K..       a range: 64K..1M, ..1M, or one number; K, M and G are powers of 1024
//   dims=2..          how many dimensions
//   type=TYPE|TYPE    float32, float16, bfloat16
//
// Unless a rule says otherwise, it applies to tensors of at least 64 KiB and two dimensions: small tensors and biases
// are sent uncompressed, and so is every tensor that no rule fits. Types other than those three are never compressed.
// `SPEC @STEP SPEC` changes the compression from that step on; the first step is 0. `warmup=STEPS` alone: nothing is
// compressed before that step.
//
// A SPEC may be `budget=BITS`: bits an element in the mean over all tensors of the rule, which the program spends
// (qccl.ddp.State does) by a step of the codec `grid` for each. Where nothing has been measured, `grid:entropy=rans`
// stands in for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl {

// What a policy knows of a tensor.
struct TensorInfo {
  std::string_view name{};  // which name= matches
  std::uint64_t count = 0;  // elements
  int dimensions = 1;       // their number
  DataType type = DataType::float32;
};

// Any number of threads may use one policy at once.
class Policy {
 public:
  // Compresses nothing.
  Policy() = default;

  // Throws Error(invalid_argument), which says what is wrong with the text and what is allowed.
  static Policy parse(std::string_view text);
  // The text that parse() reads back to an equal value.
  std::string to_string() const;

  // A pure function of its arguments.
  Compression choose(const TensorInfo& tensor, std::uint64_t step) const;
  // The budget of the rule that fits, in bits an element; 0 if it names a compression. As pure.
  double budget(const TensorInfo& tensor, std::uint64_t step) const;

  friend bool operator==(const Policy&, const Policy&) = default;

 private:
  friend class PolicyParser;

  struct Range {
    std::uint64_t least = 0;
    std::uint64_t most = UINT64_MAX;
    friend bool operator==(const Range&, const Range&) = default;
  };
  struct Stage {
    std::uint64_t first_step = 0;
    Compression compression{};
    double budget = 0;  // bits an element; 0: none
    friend bool operator==(const Stage&, const Stage&) = default;
  };
  struct Rule {
    std::vector<std::string> names{};  // empty: any
    Range bytes{.least = 64 * 1024};
    Range dimensions{.least = 2};
    std::vector<DataType> types{};  // empty: any that can be compressed
    std::vector<Stage> stages{};    // the first from step 0
    bool fits(const TensorInfo& tensor) const;
    std::string to_string() const;
    friend bool operator==(const Rule&, const Rule&) = default;
  };

  // null: the tensor is not compressed.
  const Stage* stage_of(const TensorInfo& tensor, std::uint64_t step) const;

  std::uint64_t warm_up_steps_ = 0;
  std::vector<Rule> rules_{};
};

}  // namespace qccl
