// The outer loop (qccl/outer.h) over torch's tensors: parameters of any floating point type, on any device.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "qccl/outer.h"
#include "qccl/outer_plan.h"
#include "tensors.h"

namespace qccl::torch_binding {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

at::Tensor view_of(std::span<const float> values, at::IntArrayRef shape) {
  // torch has no tensors of constant memory; nobody writes to this one.
  return at::from_blob(const_cast<float*>(values.data()), shape, at::TensorOptions(at::kFloat));
}

train::OuterParameter parameter_of(const std::string& name, const at::Tensor& tensor, bool is_averaged) {
  const at::Tensor own = tensor.detach();
  train::OuterParameter parameter;
  parameter.name = name;
  parameter.count = static_cast<std::size_t>(own.numel());
  parameter.load = [own](std::span<float> to) {
    const at::NoGradGuard no_gradients;
    view_of(to, own.sizes()).copy_(own);
  };
  parameter.store = [own](std::span<const float> from) {
    const at::NoGradGuard no_gradients;
    own.copy_(view_of(from, own.sizes()));
  };
  parameter.is_averaged = is_averaged;
  return parameter;
}

// An optimizer whose methods are Python's.
class PythonOptimizer final : public train::OuterOptimizer {
 public:
  explicit PythonOptimizer(py::object methods) : methods_(std::move(methods)) {}
  ~PythonOptimizer() override {
    const py::gil_scoped_acquire acquired;
    methods_ = py::object();
  }
  void step(std::size_t fragment, std::span<float> global, std::span<const float> gradient) override {
    const py::gil_scoped_acquire acquired;
    const auto count = static_cast<std::int64_t>(global.size());
    methods_.attr("step")(fragment, view_of(global, count), view_of(gradient, count));
  }
  std::string settings() const override {
    const py::gil_scoped_acquire acquired;
    return methods_.attr("settings").cast<std::string>();
  }
  std::vector<std::byte> save(std::size_t fragment) const override {
    const py::gil_scoped_acquire acquired;
    const auto saved = methods_.attr("save")(fragment).cast<std::string>();
    const auto bytes = std::as_bytes(std::span(saved));
    return {bytes.begin(), bytes.end()};
  }
  void load(std::size_t fragment, std::span<const std::byte> saved) override {
    const py::gil_scoped_acquire acquired;
    methods_.attr("load")(fragment, py::bytes(reinterpret_cast<const char*>(saved.data()), saved.size()));
  }

 private:
  py::object methods_;
};

// A function of Python, which may end in any thread.
std::shared_ptr<py::object> shared(py::object function) {
  return {new py::object(std::move(function)), [](const py::object* owned) {
            const py::gil_scoped_acquire acquired;
            delete owned;
          }};
}

// The torch exception that Python would have caught.
py::object exception_of(const Error& error) {
  torch::translate_exception_to_python(to_torch(error.info()));
  return py::error_already_set().value();
}

// `replace` gets the exception, and returns the next group's backend.
std::function<Communicator(const Error&)> replacing(py::object replace) {
  return [replace = shared(std::move(replace))](const Error& loss) {
    const py::gil_scoped_acquire acquired;
    return own((*replace)(exception_of(loss)).cast<BackendPointer>()).communicator();
  };
}

// The loop with its optimizer, if that is not Python's.
struct TorchOuterLoop : train::OuterLoop {
  TorchOuterLoop(const BackendPointer& backend, std::vector<train::OuterParameter> parameters,
                 const train::OuterOptions& options)
      : OuterLoop(own(backend).communicator(), std::move(parameters), options),
        sgd(std::dynamic_pointer_cast<train::OuterSgd>(options.optimizer)) {}
  std::shared_ptr<train::OuterSgd> sgd;
};

// Waits for the round in flight.
struct EndOfLoop {
  void operator()(const TorchOuterLoop* loop) const {
    const py::gil_scoped_release released;
    delete loop;
  }
};
using LoopPointer = std::unique_ptr<TorchOuterLoop, EndOfLoop>;

// SGD's rate, momentum and whether it is Nesterov's, or methods of Python's.
std::shared_ptr<train::OuterOptimizer> optimizer_of(const py::object& given) {
  if (!py::isinstance<py::tuple>(given)) return std::make_shared<PythonOptimizer>(given);
  const auto [rate, momentum, nesterov] = given.cast<std::tuple<double, double, bool>>();
  return std::make_shared<train::OuterSgd>(
      train::OuterSgdOptions{.learning_rate = rate, .momentum = momentum, .nesterov = nesterov});
}

LoopPointer make_loop(const BackendPointer& backend,
                      const std::vector<std::tuple<std::string, at::Tensor, bool>>& tensors,
                      const py::object& optimizer, const py::dict& settings) {
  train::OuterOptions options;
  const auto take = [&]<class T>(const char* key, T& field) { field = settings[key].cast<T>(); };
  take("every", options.every);
  take("fragments", options.fragments);
  take("delay", options.delay);
  take("blend", options.blend);
  take("error_feedback", options.error_feedback);
  take("error_decay", options.error_decay);
  take("bfloat16_residual", options.bfloat16_residual);
  take("is_weighted", options.is_weighted);
  if (const auto ms = settings["every_ms"].cast<std::optional<std::int64_t>>()) options.every_time = Milliseconds(*ms);
  options.go_on = !settings["replace_group"].is_none();
  if (options.go_on) options.replace_group = replacing(settings["replace_group"]);
  options.compression = Compression::parse(settings["compression"].cast<std::string>());
  options.optimizer = optimizer_of(optimizer);
  std::vector<train::OuterParameter> parameters;
  for (const auto& [name, tensor, is_averaged] : tensors) {
    parameters.push_back(parameter_of(name, tensor, is_averaged));
  }
  const py::gil_scoped_release released;
  return LoopPointer(new TorchOuterLoop(backend, std::move(parameters), options));
}

at::Tensor copy_of(std::span<const float> values) {
  return view_of(values, static_cast<std::int64_t>(values.size())).clone();
}

// The bytes belong to the tensor.
at::Tensor saved_state(const TorchOuterLoop& loop) {
  const auto saved = std::make_shared<std::vector<std::byte>>(loop.save());
  return at::from_blob(
      saved->data(), static_cast<std::int64_t>(saved->size()), [saved](void*) {}, at::TensorOptions(at::kByte));
}

// On any device.
void load_state(TorchOuterLoop& loop, const at::Tensor& saved, bool is_own) {
  const at::Tensor bytes = saved.to(at::kCPU, at::kByte).contiguous();
  loop.load(std::as_bytes(std::span(bytes.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(bytes.numel()))),
            is_own);
}

py::list history_of(const TorchOuterLoop& loop) {
  py::list rounds;
  for (const train::OuterRound& round : loop.history()) {
    py::dict each;
    visit_fields(round, [&](const char* key, const auto& field) { each[key] = field; });
    each["computing"] = round.computing();
    rounds.append(each);
  }
  return rounds;
}

// 0 if the optimizer is Python's.
double learning_rate(const TorchOuterLoop& loop) { return loop.sgd ? loop.sgd->learning_rate() : 0; }
void set_learning_rate(TorchOuterLoop& loop, double rate) {
  if (loop.sgd) loop.sgd->set_learning_rate(rate);
}

// The fields of each row, and the table. `model`: the number of parameters and their names; without names any number of
// fragments may do.
py::tuple plan(const std::pair<std::uint64_t, std::vector<std::string>>& model, int ranks, double step_seconds,
               double computing, const std::pair<double, double>& rate_and_latency) {
  const auto rows = train::plan_outer({.parameters = model.first,
                                       .layers = train::count_layers(model.second),
                                       .ranks = ranks,
                                       .step_seconds = step_seconds,
                                       .computing = computing,
                                       .rate = rate_and_latency.first,
                                       .latency = rate_and_latency.second});
  py::list fields;
  for (const train::OuterPlanRow& row : rows) {
    fields.append(py::make_tuple(row.compression, row.fragments, row.every, row.delay, row.computing, row.bytes_a_step,
                                 row.round_seconds));
  }
  return py::make_tuple(fields, train::to_text(rows));
}

}  // namespace

void bind_outer(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<TorchOuterLoop, LoopPointer>(module, "OuterLoop")
      .def(py::init(&make_loop))
      .def("step", &TorchOuterLoop::step, Released())
      .def("finish", &TorchOuterLoop::finish, Released())
      .def(
          "regroup",
          [](TorchOuterLoop& loop, const BackendPointer& backend) { loop.regroup(own(backend).communicator()); },
          Released())
      .def_property("learning_rate", &learning_rate, &set_learning_rate)
      .def("begin_waiting", &TorchOuterLoop::begin_waiting)
      .def_property_readonly("fragments", &TorchOuterLoop::fragments)
      .def_property_readonly("begins_round", &TorchOuterLoop::begins_round)
      .def_property_readonly("rounds", &TorchOuterLoop::rounds)
      .def_property_readonly("rounds_begun", &TorchOuterLoop::rounds_begun)
      .def_property_readonly("steps", &TorchOuterLoop::steps)
      .def("members", &TorchOuterLoop::members)
      .def("global_values",
           [](const TorchOuterLoop& loop, std::size_t fragment) { return copy_of(loop.global(fragment)); })
      .def("residual",
           [](const TorchOuterLoop& loop, std::size_t fragment) { return copy_of(loop.residual(fragment)); })
      .def("save", &saved_state, Released())
      .def("load", &load_state, Released())
      .def("history", &history_of);
  module.def("plan_outer", &plan);
}

}  // namespace qccl::torch_binding
