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

class TorchOuterLoop {
 public:
  TorchOuterLoop(const BackendPointer& backend, const std::vector<std::tuple<std::string, at::Tensor, bool>>& tensors,
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
    if (const auto ms = settings["every_ms"].cast<std::optional<std::int64_t>>())
      options.every_time = Milliseconds(*ms);
    options.go_on = !settings["replace_group"].is_none();
    if (options.go_on) options.replace_group = replacing(settings["replace_group"]);
    options.compression = Compression::parse(settings["compression"].cast<std::string>());
    if (py::isinstance<py::tuple>(optimizer)) {
      const auto [rate, momentum, nesterov] = optimizer.cast<std::tuple<double, double, bool>>();
      sgd_ = std::make_shared<train::OuterSgd>(
          train::OuterSgdOptions{.learning_rate = rate, .momentum = momentum, .nesterov = nesterov});
      options.optimizer = sgd_;
    } else {
      options.optimizer = std::make_shared<PythonOptimizer>(optimizer);
    }
    std::vector<train::OuterParameter> parameters;
    for (const auto& [name, tensor, is_averaged] : tensors) {
      parameters.push_back(parameter_of(name, tensor, is_averaged));
    }
    const py::gil_scoped_release released;
    loop_ = std::make_unique<train::OuterLoop>(own(backend).communicator(), std::move(parameters), options);
  }
  ~TorchOuterLoop() {
    const py::gil_scoped_release released;
    loop_.reset();
  }

  void step(double samples) { loop_->step(samples); }
  void finish() { loop_->finish(); }
  void regroup(const BackendPointer& backend) { loop_->regroup(own(backend).communicator()); }
  // 0 if the optimizer is Python's.
  double learning_rate() const { return sgd_ ? sgd_->learning_rate() : 0; }
  void set_learning_rate(double rate) {
    if (sgd_) sgd_->set_learning_rate(rate);
  }
  void begin_waiting() { loop_->begin_waiting(); }
  std::size_t fragments() const { return loop_->fragments(); }
  bool begins_round() const { return loop_->begins_round(); }
  std::uint64_t rounds() const { return loop_->rounds(); }
  std::uint64_t rounds_begun() const { return loop_->rounds_begun(); }
  std::uint64_t steps() const { return loop_->steps(); }
  std::vector<std::size_t> members(std::size_t fragment) const { return loop_->members(fragment); }
  at::Tensor global(std::size_t fragment) const {
    const auto values = loop_->global(fragment);
    return view_of(values, static_cast<std::int64_t>(values.size())).clone();
  }
  at::Tensor residual(std::size_t fragment) const {
    const auto values = loop_->residual(fragment);
    return view_of(values, static_cast<std::int64_t>(values.size())).clone();
  }
  // The bytes belong to the tensor.
  at::Tensor save() const {
    const auto saved = std::make_shared<std::vector<std::byte>>(loop_->save());
    return at::from_blob(
        saved->data(), static_cast<std::int64_t>(saved->size()), [saved](void*) {}, at::TensorOptions(at::kByte));
  }
  // On any device.
  void load(const at::Tensor& saved, bool is_own) {
    const at::Tensor bytes = saved.to(at::kCPU, at::kByte).contiguous();
    loop_->load(std::as_bytes(std::span(bytes.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(bytes.numel()))),
                is_own);
  }
  py::list history() const {
    py::list rounds;
    for (const train::OuterRound& round : loop_->history()) {
      py::dict each;
      visit_fields(round, [&](const char* key, const auto& field) { each[key] = field; });
      each["computing"] = round.computing();
      rounds.append(each);
    }
    return rounds;
  }

 private:
  std::shared_ptr<train::OuterSgd> sgd_;
  std::unique_ptr<train::OuterLoop> loop_;
};

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
  py::class_<TorchOuterLoop>(module, "OuterLoop")
      .def(py::init<const BackendPointer&, const std::vector<std::tuple<std::string, at::Tensor, bool>>&,
                    const py::object&, const py::dict&>())
      .def("step", &TorchOuterLoop::step, Released())
      .def("finish", &TorchOuterLoop::finish, Released())
      .def("regroup", &TorchOuterLoop::regroup, Released())
      .def_property("learning_rate", &TorchOuterLoop::learning_rate, &TorchOuterLoop::set_learning_rate)
      .def("begin_waiting", &TorchOuterLoop::begin_waiting)
      .def_property_readonly("fragments", &TorchOuterLoop::fragments)
      .def_property_readonly("begins_round", &TorchOuterLoop::begins_round)
      .def_property_readonly("rounds", &TorchOuterLoop::rounds)
      .def_property_readonly("rounds_begun", &TorchOuterLoop::rounds_begun)
      .def_property_readonly("steps", &TorchOuterLoop::steps)
      .def("members", &TorchOuterLoop::members)
      .def("global_values", &TorchOuterLoop::global)
      .def("residual", &TorchOuterLoop::residual)
      .def("save", &TorchOuterLoop::save, Released())
      .def("load", &TorchOuterLoop::load, Released())
      .def("history", &TorchOuterLoop::history);
  module.def("plan_outer", &plan);
}

}  // namespace qccl::torch_binding
