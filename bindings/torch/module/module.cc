// The extension module qccl._C: makes backends for torch.distributed and offers the calls that torch's interface lacks.
// Functions that Python calls may throw qccl::Error, which becomes torch's exception (tensors.h).
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "qccl/error_feedback.h"
#include "qccl/launch.h"
#include "qccl/policy.h"
#include "work/ordered_future.h"

namespace qccl::torch_binding {

// Each adds its functions and classes to the module: the communication log of all jobs of the process, the shape of a
// mesh (qccl/mesh.h), pipelines (qccl/pipeline.h), groups that go on after a failure and estimates of time, jobs that
// grow, the outer loop (qccl/outer.h), and qccl.Options.
void bind_log(py::module_& module);
void bind_gauge(py::module_& module);
void bind_mesh(py::module_& module);
void bind_pipeline(py::module_& module);
void bind_failures(py::module_& module);
void bind_growth(py::module_& module);
void bind_outer(py::module_& module);
void bind_options(py::module_& module);

namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

// Runs Python's handlers of signals that have come, as between two lines of Python.
void check_signals() {
  const py::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

GroupSpec make_spec(const py::kwargs& fields) {
  const auto take = [&]<class T>(const char* key, T& field) { field = fields[key].cast<T>(); };
  GroupSpec spec;
  take("store", spec.store);
  take("rank", spec.rank);
  take("global_ranks", spec.global_ranks);
  take("name", spec.name);
  take("may_gate", spec.may_gate);
  take("trace_dump", spec.trace_dump);
  spec.size = static_cast<int>(spec.global_ranks.size());
  if (const auto ms = fields["timeout_ms"].cast<std::optional<std::int64_t>>()) {
    spec.timeout = std::chrono::milliseconds(*ms);
  }
  spec.settings = fields["options"].cast<const GroupOptions&>().settings;
  spec.message_compression = fields["job_options"].cast<const GroupOptions&>().settings.message_compression;
  spec.check_interrupt = check_signals;
  return spec;
}

// Makes the group in the job that holds all its ranks, or in a new one.
BackendPointer make_backend(const GroupSpec& spec) {
  const auto job = JobRegistry::instance().find(spec);
  return job ? Backend::make_group(job, spec) : Backend::make_job(spec);
}

void set_compression(const BackendPointer& backend, const std::string& spec) {
  own(backend).set_compression(Compression::parse(spec));
}

// The three counters of qccl.Traffic.
using Counters = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

Counters counters_of(const Traffic& traffic) {
  return {traffic.payload_bytes_sent, traffic.header_bytes_sent, traffic.shared_bytes_sent};
}

Counters traffic(const BackendPointer& backend) { return counters_of(own(backend).communicator().traffic()); }

// The counters of each job that has an open group. A job that goes on without lost ranks shares those, and the trace,
// with the one before it.
std::vector<Counters> traffic_of_process() {
  std::vector<Counters> found;
  std::set<const OperationTrace*> counted;
  for (const auto& job : JobRegistry::instance().all()) {
    const auto traffic = job->traffic();
    if (traffic && counted.insert(job->trace().get()).second) found.push_back(counters_of(*traffic));
  }
  return found;
}

// The same of their states, in JSON.
std::vector<std::string> status_of_process() {
  std::vector<std::string> found;
  std::set<const OperationTrace*> counted;
  for (const auto& job : JobRegistry::instance().all()) {
    const auto status = job->status();
    if (status && counted.insert(job->trace().get()).second) found.push_back(to_json(*status));
  }
  return found;
}

TensorInfo info_of(const std::string& name, const at::Tensor& tensor) {
  return {.name = name,
          .count = static_cast<std::uint64_t>(tensor.numel()),
          .dimensions = static_cast<int>(tensor.dim()),
          .type = elements_of(tensor).type};
}

std::string choose(const Policy& policy, const std::string& name, const at::Tensor& tensor, std::uint64_t step) {
  return policy.choose(info_of(name, tensor), step).to_string();
}

double budget(const Policy& policy, const std::string& name, const at::Tensor& tensor, std::uint64_t step) {
  return policy.budget(info_of(name, tensor), step);
}

CompressedPart make_part(const at::Tensor& tensor, const std::optional<std::string>& compression,
                         const std::optional<ErrorFeedback>& feedback, bool keep_input) {
  CompressedPart part{.tensor = tensor, .keep_input = keep_input};
  if (compression) part.compression = Compression::parse(*compression);
  if (feedback) part.feedback = *feedback;
  return part;
}

at::Tensor residual_of(const ErrorFeedback& feedback) {
  const std::span<float> residual = feedback.residual();
  return at::from_blob(
      residual.data(), {static_cast<std::int64_t>(residual.size())}, [feedback](void*) {},
      at::TensorOptions(at::kFloat));
}

py::bytes save(const ErrorFeedback& feedback) {
  const auto saved = feedback.save();
  return {reinterpret_cast<const char*>(saved.data()), saved.size()};
}

ErrorFeedback restore(const py::bytes& saved) {
  const std::string_view text(saved);
  return ErrorFeedback::restore(std::as_bytes(std::span(text.data(), text.size())));
}

// A tensor in memory from Communicator::allocate().
at::Tensor empty(const BackendPointer& backend, const std::vector<std::int64_t>& size, at::ScalarType type) {
  std::size_t bytes = c10::elementSize(type);
  for (const std::int64_t extent : size) {
    if (extent < 0) C10_THROW_ERROR(ValueError, "a tensor can't have the extent " + std::to_string(extent));
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes)) {
      C10_THROW_ERROR(ValueError, "a tensor can't be so large");
    }
  }
  std::shared_ptr<void> memory = own(backend).communicator().allocate_bytes(bytes);
  void* const data = memory.get();
  return at::from_blob(
      data, size, [memory = std::move(memory)](void*) mutable { memory.reset(); }, at::TensorOptions(type));
}

// ---- The 1-bit all-reduce (qccl/onebit.h)

constexpr const char* kOnebit = "compressed_allreduce";

void check_float(const at::Tensor& tensor, const char* name) {
  check_writable(tensor, kOnebit);
  require(tensor.scalar_type() == at::kFloat, kOnebit, std::string(name), " must be float32, not ",
          c10::toString(tensor.scalar_type()));
}

std::span<float> elements_of_error(const at::Tensor& error, const char* name) {
  check_float(error, name);
  require(error.is_contiguous(), kOnebit, std::string(name), " must be contiguous");
  return {error.mutable_data_ptr<float>(), static_cast<std::size_t>(error.numel())};
}

// Calls Communicator::compressed_allreduce() in place. Takes dense float32 tensors on one device: `buffer` of any shape
// and strides, the errors contiguous. Blocking. ValueError for other tensors or a wrong number of elements.
void compressed_allreduce(const BackendPointer& backend, const at::Tensor& buffer, const at::Tensor& worker_error,
                          const at::Tensor& server_error) {
  check_float(buffer, "the buffer");
  const std::span<float> worker = elements_of_error(worker_error, "worker_error");
  const std::span<float> server = elements_of_error(server_error, "server_error");
  const std::optional<DeviceStream> stream = stream_of(std::array{buffer, worker_error, server_error}, kOnebit);
  CallMemory memory;
  const at::Tensor sum = memory.update(buffer);
  const std::span<float> elements(sum.mutable_data_ptr<float>(), static_cast<std::size_t>(sum.numel()));
  own(backend).communicator().compressed_allreduce(elements, worker, server, {.stream = stream});
  memory.finish();
}

// ---- Jobs

qccl::Launch find_launch(std::optional<int> rank, std::optional<int> world, std::uint16_t port,
                         std::optional<std::int64_t> timeout_ms) {
  qccl::InitOptions options{.rank = rank, .world = world};
  if (timeout_ms) options.init_timeout = std::chrono::milliseconds(*timeout_ms);
  return qccl::find_launch(options, port);
}

std::string describe(const BackendPointer& backend) { return own(backend).communicator().describe(); }

// Ranks, hosts and compression.
std::tuple<int, std::size_t, std::string> job_facts(const BackendPointer& backend) {
  const Communicator group = own(backend).communicator();
  const std::vector<int> hosts = group.hosts();
  return {group.size(), std::set(hosts.begin(), hosts.end()).size(), group.compression().to_string()};
}

void close_all(std::int64_t limit_ms) {
  constexpr std::chrono::milliseconds kStopLimit{2000};
  for (const auto& job : JobRegistry::instance().all()) job->close_all(std::chrono::milliseconds(limit_ms));
  JobRegistry::instance().end_threads(kStopLimit);
}

void bind_reports(py::module& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  module.def("traffic", &traffic, Released());
  module.def("traffic_of_process", &traffic_of_process, Released());
  module.def("status_of_process", &status_of_process, Released());
  module.def("describe", &describe, Released());
  module.def("job_facts", &job_facts, Released());
  module.def(
      "trace", [](const BackendPointer& backend) { return own(backend).job()->trace()->to_json(); }, Released());
}

// Calls with a compression of their own.
void bind_compressed_calls(py::module& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<CompressedPart>(module, "CompressedPart")
      .def(py::init(&make_part), py::arg("tensor"), py::arg("compression"), py::arg("feedback"),
           py::arg("keep_input") = false);
  module.def(
      "all_reduce_parts",
      [](const BackendPointer& backend, const std::vector<CompressedPart>& parts, const at::Tensor& whole,
         const c10d::ReduceOp& op,
         bool asynchronous) { return own(backend).all_reduce_parts(parts, whole, op, asynchronous); },
      Released());
  module.def(
      "reduce_scatter",
      [](const BackendPointer& backend, const CompressedPart& input, const at::Tensor& output, const c10d::ReduceOp& op,
         bool asynchronous) { return own(backend).reduce_scatter_part(input, output, op, asynchronous); },
      Released());
  module.def(
      "send",
      [](const BackendPointer& backend, const CompressedPart& part, int to, int tag) {
        return own(backend).send_part(part, to, tag);
      },
      Released());
  module.def(
      "recv",
      [](const BackendPointer& backend, const CompressedPart& part, int from, int tag) {
        return own(backend).recv_part(part, from, tag);
      },
      Released());
}

void bind_launch(py::module& module) {
  py::class_<qccl::Launch>(module, "Launch")
      .def_readonly("rank", &qccl::Launch::rank)
      .def_readonly("world", &qccl::Launch::world)
      .def_readonly("local_rank", &qccl::Launch::local_rank)
      .def_readonly("local_world", &qccl::Launch::local_world)
      .def_readonly("source", &qccl::Launch::source)
      .def_readonly("master_address", &qccl::Launch::master_address)
      .def_readonly("master_port", &qccl::Launch::master_port);
  module.def("find_launch", &find_launch, py::kw_only(), py::arg("rank") = py::none(), py::arg("world") = py::none(),
             py::arg("port") = 0, py::arg("timeout_ms") = py::none(), py::call_guard<py::gil_scoped_release>());
}

}  // namespace

Backend& own(const BackendPointer& backend) {
  if (auto* own = dynamic_cast<Backend*>(backend.get())) return *own;
  C10_THROW_ERROR(ValueError, "not a process group of the qccl backend but of " + backend->getBackendName());
}

// The library's errors as torch's exceptions.
void translate(std::exception_ptr exception) {
  try {
    std::rethrow_exception(std::move(exception));
  } catch (const qccl::Error& error) {
    torch::translate_exception_to_python(to_torch(error.info()));
  }
}

}  // namespace qccl::torch_binding

PYBIND11_MODULE(_C, module) {
  using namespace qccl::torch_binding;
  using Released = py::call_guard<py::gil_scoped_release>;
  py::register_local_exception_translator(&translate);
  bind_options(module);
  py::class_<GroupSpec>(module, "GroupSpec").def(py::init(&make_spec));
  // torch 2.13's Backend has no options, which dist.split_group() copies.
  py::class_<Backend, c10::intrusive_ptr<Backend>, c10d::Backend>(module, "Backend")
      .def_property_readonly("options", &Backend::getBackendOptions);
  py::class_<OrderedFuture, torch::jit::PythonFutureWrapper, std::shared_ptr<OrderedFuture>>(module, "Future")
      .def("then", &OrderedFuture::then)
      .def("add_done_callback", &OrderedFuture::add_done_callback)
      .def("wait", &OrderedFuture::wait, Released());
  py::class_<CollectiveWork, c10::intrusive_ptr<CollectiveWork>, c10d::Work>(module, "Work")
      .def("get_future", &ordered_future)
      .def("abort", &CollectiveWork::abort, Released());
  module.def("make_backend", &make_backend, Released());
  module.def("set_compression", &set_compression, Released());
  module.def("check_compression", [](const std::string& spec) { return qccl::Compression::parse(spec).to_string(); });
  py::class_<qccl::Policy>(module, "Policy")
      .def(py::init(&qccl::Policy::parse))
      .def("__str__", &qccl::Policy::to_string)
      .def("choose", &choose)
      .def("budget", &budget);
  py::class_<qccl::ErrorFeedback>(module, "ErrorFeedback")
      .def(py::init<std::size_t, std::uint64_t>(), py::arg("count"), py::arg("counter") = 0)
      .def_static("restore", &restore)
      .def("save", &save)
      .def_property_readonly("size", &qccl::ErrorFeedback::size)
      .def_property_readonly("counter", &qccl::ErrorFeedback::counter)
      .def_property_readonly("residual", &residual_of)
      .def("settle", &qccl::ErrorFeedback::settle, py::arg("counter"))
      .def("reset", py::overload_cast<>(&qccl::ErrorFeedback::reset))
      .def("reset", py::overload_cast<std::size_t, std::size_t>(&qccl::ErrorFeedback::reset), py::arg("begin"),
           py::arg("count"));
  bind_compressed_calls(module);
  module.def("hook_future", &hook_future, py::arg("work"), py::arg("share_work"), py::arg("share"), Released());
  module.def("compressed_allreduce", &compressed_allreduce, Released());
  module.def("empty", &empty, Released());
  bind_reports(module);
  // torch 2.13 has no Python binding for it.
  module.def("get_error", [](const BackendPointer& backend) { return static_cast<int>(own(backend).getError()); });
  bind_log(module);
  bind_gauge(module);
  module.def("close_all", &close_all, Released());
  bind_failures(module);
  bind_growth(module);
  bind_launch(module);
  module.def("version", &qccl::version);
  bind_mesh(module);
  bind_pipeline(module);
  bind_outer(module);
}
