// Training that synchronises every H steps: each rank trains alone; now and then the ranks average how far they came
// (delta = global model - own model), an outer optimizer steps the global model by it, and all go on from there. Sends
// some H times fewer bytes than data parallelism.
//
//   qccl::train::OuterLoop outer(world, {qccl::train::OuterParameter::of("layer.0.weight", weights), ...},
//                                {.every = 100, .fragments = 4, .delay = 5,
//                                 .compression = qccl::block_int({.bits = 4})});
//   for (...) {
//     // forward, backward, inner optimizer
//     outer.step();
//   }
//   outer.finish();
//
// | method                | options                                                                                   |
// |-----------------------|-------------------------------------------------------------------------------------------|
// | parameter averaging   | optimizer of OuterSgd({.learning_rate = 1, .momentum = 0}), no compression                |
// | DiLoCo                | the defaults                                                                              |
// | streaming DiLoCo      | fragments P, delay tau, blend alpha, compression                                          |
// | SparseLoCo            | optimizer as for averaging, compression "topk:density=0.02,values=int2", error_decay      |
//
// McMahan et al., 2017 (averaging); Douillard et al., DiLoCo, arXiv 2311.08105; Streaming DiLoCo, arXiv 2501.18512;
// Sarfi et al., SparseLoCo, arXiv 2508.15706.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qccl/communicator.h"
#include "qccl/compression.h"
#include "qccl/failures.h"
#include "qccl/log.h"

namespace qccl::train {

// A part of the model, on this rank. Deltas are float32, whatever the values are.
struct OuterParameter {
  std::string name;                                   // decides its layer, see OuterOptions::fragments
  std::size_t count = 0;                              // elements
  std::function<void(std::span<float>)> load;         // copies the `count` values into the span
  std::function<void(std::span<const float>)> store;  // replaces them by those of the span
  // Statistics such as batch norm's: averaged, uncompressed, and not stepped by the optimizer.
  bool is_averaged = false;

  // The memory must outlive the OuterLoop.
  static OuterParameter of(std::string name, std::span<float> values);
};

// Steps the global model. The same on all ranks, and deterministic: every rank steps its own copy.
class OuterOptimizer {
 public:
  virtual ~OuterOptimizer() = default;
  // `gradient` is the average of the deltas; the average of the models is global - gradient.
  virtual void step(std::size_t fragment, std::span<float> global, std::span<const float> gradient) = 0;
  // The state of a fragment, for checkpoints and for ranks that join; empty before its first step.
  virtual std::vector<std::byte> save(std::size_t fragment) const = 0;
  virtual void load(std::size_t fragment, std::span<const std::byte> saved) = 0;
  // All that must be equal on all ranks, as text. An OuterLoop asks once, when it is made, and compares the answers
  // when ranks join or regroup, and with that of a saved state: what happens to the optimizer later must not count.
  virtual std::string settings() const { return {}; }
  // The rate, if the program may change it between steps: it is part of the saved state, and ranks that join get it. An
  // optimizer that overrides one of the two overrides both. Ranks whose rates differ when a round begins get
  // invalid_argument, all of them, from the step(), finish() or regroup() that ends the round; with equal rates the
  // next call begins it again. step() is called at the rate with which its round began.
  virtual double learning_rate() const { return 0; }
  virtual void set_learning_rate(double) {}
};

// Settings of OuterSgd.
struct OuterSgdOptions {
  double learning_rate = 0.7;  // of the global model
  double momentum = 0.9;       // 0: no memory for it
  bool nesterov = true;        // Nesterov's momentum
};

// As torch.optim.SGD without dampening and weight decay.
class OuterSgd final : public OuterOptimizer {
 public:
  explicit OuterSgd(const OuterSgdOptions& options = {});
  // With the rate as it is now.
  const OuterSgdOptions& options() const { return options_; }
  // Before any step, by all ranks alike. The next round that begins uses it; one in flight ends at its own rate.
  void set_learning_rate(double rate) override { options_.learning_rate = rate; }
  double learning_rate() const override { return options_.learning_rate; }
  std::string settings() const override;
  void step(std::size_t fragment, std::span<float> global, std::span<const float> gradient) override;
  std::vector<std::byte> save(std::size_t fragment) const override;
  void load(std::size_t fragment, std::span<const std::byte> saved) override;

 private:
  OuterSgdOptions options_;
  std::vector<std::vector<float>> momentum_;  // by fragment
};

// The same on all ranks, except `every_time`.
struct OuterOptions {
  std::uint64_t every = 100;                 // steps between two rounds of a fragment: H
  std::optional<Milliseconds> every_time{};  // instead of it; `delay` is then in steps all the same
  // Number of parts that are synchronised one after another, evenly spread over the steps. They consist of layers:
  // layer i is in fragment i mod `fragments`. A layer is the parameters whose names are equal up to their first number,
  // or without one up to their last dot, in the order of the list.
  std::size_t fragments = 1;
  std::uint64_t delay = 0;  // steps between a round's begin and the wait for its end, at most every / fragments: tau
  double blend = 0;         // share of the own model that a rank keeps at the end of a round, 0..1: alpha
  // The codec of deltas. With topk, every rank receives every other rank's choice, as in SparseLoCo (round_algorithm()
  // in outer_plan.h).
  Compression compression{};
  bool error_feedback = true;      // what compression left out of a delta is added to the next one
  double error_decay = 1;          // what is left out is first multiplied by this, 0..1
  bool bfloat16_residual = false;  // half of the memory for what is left out
  // Deltas count by the samples that were given to step(), instead of equally. Unset: with every_time.
  std::optional<bool> is_weighted{};
  std::shared_ptr<OuterOptimizer> optimizer{};  // unset: OuterSgd
  // After the loss of ranks, step(), finish() and regroup() go on with those that live, and repeat the round with them.
  // They shrink the group that the loop was given last (Communicator::shrink()), which ends that group: give it a dup()
  // if the program or another OuterLoop uses the group as well. false: they throw, and the caller calls regroup().
  bool go_on = true;
  ShrinkOptions shrink{};
  // Makes the group with which go_on goes on, instead of shrinking. What it throws, the call that met the loss throws.
  std::function<Communicator(const Error& loss)> replace_group{};
};

// The number of layers of parameters with these names: the most `fragments` that there can be.
std::size_t count_layers(std::span<const std::string> names);

// One round, as this rank saw it. The log has them as well, if it is enabled. A rank trains between the calls of its
// OuterLoop, and waits within them, from an error to the next call, and from begin_waiting() to the next call. `bytes`
// are all that the rank sent meanwhile, those of other groups' calls included.
using OuterRound = RoundRecord;

// One thread at a time. All ranks construct it; its collectives have a group of their own. After step() and finish()
// the global model has the same bits on every rank that has ended the same rounds.
//
// Memory: the global model (4 bytes a value), the optimizer's momentum (4), the residual (4, or 2 with
// bfloat16_residual), and 8 bytes a value of the largest fragment; while its round is in flight 8 more with error
// feedback.
class OuterLoop {
 public:
  // Collective: all ranks get the values of rank 0. A rank that joins a job that trains already gets the global model
  // and the optimizer's state and rate, while the other ranks call regroup(). Throws invalid_argument for wrong
  // options, and if parameters, options or optimizers differ between ranks. After the loss of a rank it throws, also
  // with OuterOptions::go_on.
  OuterLoop(Communicator group, std::vector<OuterParameter> parameters, const OuterOptions& options = {});
  // Waits for the round in flight. Throws nothing.
  ~OuterLoop();
  OuterLoop(OuterLoop&&) noexcept;
  OuterLoop& operator=(OuterLoop&&) = delete;

  // After each step of the inner optimizer, which took so many samples. Posts and ends rounds. Errors of collectives
  // are thrown unchanged, except losses with OuterOptions::go_on; the round then is still to be done. Throws
  // invalid_argument, and counts no step, if the samples are negative or not finite.
  void step(double samples = 1);
  // Ends the round in flight, waits until all ranks have called it, and synchronises every fragment: all ranks then
  // have the same model. A fragment that no rank has trained since its last round stays as it is. The loop can go on
  // afterwards.
  void finish();
  // Goes on in `group`, after a failure or because ranks have joined: collective over it. Ranks that had not ended the
  // last round take its result over; if it ended without their deltas, they keep what they have trained for the next
  // one, and get the others' steps() and rate. Ranks that lack more, or that missed a round of a finish() that has
  // ended, take all over, as one that joins. A round that no rank has ended is repeated. Then the step that failed is
  // completed. Throws as step() does.
  void regroup(Communicator group);

  // The group of its collectives: of the same ranks as the one that it was given, or of those that are left.
  const Communicator& group() const;
  std::size_t fragments() const;
  // The parameters of a fragment, in the order of its values.
  const std::vector<std::size_t>& members(std::size_t fragment) const;
  std::span<const float> global(std::size_t fragment) const;
  // By what compression holds back; empty without compression or error feedback.
  std::vector<float> residual(std::size_t fragment) const;
  // Whether the next step() begins a round, possibly after ending one. With every_time: as of now; it may become true
  // before the call.
  bool begins_round() const;
  // Whether the last step(), finish() or regroup() threw because of a loss, after which regroup() goes on.
  bool is_lost() const;
  // What this rank does before the next call counts as waiting, as if inside it; for agreements that the program makes
  // itself.
  void begin_waiting();
  std::uint64_t rounds() const;
  // With the one in flight.
  std::uint64_t rounds_begun() const;
  std::uint64_t steps() const;
  // The last 10,000 rounds.
  const std::vector<OuterRound>& history() const;

  // This rank's state, a round in flight included; it does not contain the parameters. Local. A run whose ranks all
  // load their own saved state, and their own parameters, has the same bits as one that was not interrupted. States of
  // different rounds make the next round fail on all ranks with invalid_argument.
  std::vector<std::byte> save() const;
  // Between step()s, without a round in flight. `is_own` = false: of another rank, for more ranks than have saved: the
  // residual begins with zeros and the parameters become the global model, so that nothing is sent twice. Throws
  // corrupt_data for what save() did not return, unsupported if another version saved it, invalid_argument if it was
  // saved with other options or parameters, misuse if a round is in flight.
  void load(std::span<const std::byte> saved, bool is_own = true);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace qccl::train
