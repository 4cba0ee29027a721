// The extension module qccl._C: makes backends for torch.distributed and offers the calls that
// torch's interface lacks.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/utils/pybind.h>

#include <string>

#include "backend/backend.h"
#include "errors.h"
#include "module/log.h"
#include "module/mesh.h"
#include "module/onebit.h"
#include "qccl/error_feedback.h"
#include "qccl/launch.h"
#include "qccl/policy.h"
#include "tensors.h"
#include "work/hook_future.h"
#include "work/ordered_future.h"

namespace qccl::torch_binding {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

GroupRequest make_request(c10::intrusive_ptr<c10d::Store> store, int rank, std::vector<std::int64_t> global_ranks,
                          std::string name, std::optional<std::int64_t> timeout_ms,
                          const std::optional<std::string>& compression, bool error_feedback,
                          const std::optional<std::string>& all_gather_compression, std::string trace_dump) {
  GroupRequest request;
  request.store = std::move(store);
  request.rank = rank;
  request.size = static_cast<int>(global_ranks.size());
  request.global_ranks = std::move(global_ranks);
  request.name = std::move(name);
  request.error_feedback = error_feedback;
  request.trace_dump = std::move(trace_dump);
  if (timeout_ms) request.timeout = std::chrono::milliseconds(*timeout_ms);
  with_torch_errors([&] {
    if (compression) request.compression = Compression::parse(*compression);
    if (all_gather_compression) request.all_gather_compression = Compression::parse(*all_gather_compression);
  });
  return request;
}

// Makes the group from a world that this process has joined; null if no world holds all its ranks.
BackendPointer join_existing(const GroupRequest& request) {
  return with_torch_errors([&]() -> BackendPointer {
    const auto world = WorldRegistry::instance().find(request);
    if (!world) return nullptr;
    return c10::make_intrusive<Backend>(world, world->subgroup(request), request, false);
  });
}

BackendPointer join_new(const GroupRequest& request) {
  return with_torch_errors([&]() -> BackendPointer {
    auto world = std::make_shared<World>(request);
    WorldRegistry::instance().add(world);
    return c10::make_intrusive<Backend>(world, world->communicator(), request, true);
  });
}

Backend& own(const BackendPointer& backend) {
  if (auto* own = dynamic_cast<Backend*>(backend.get())) return *own;
  C10_THROW_ERROR(ValueError, "not a process group of the qccl backend but of " + backend->getBackendName());
}

void set_compression(const BackendPointer& backend, const std::string& spec) {
  own(backend).set_compression(with_torch_errors([&] { return Compression::parse(spec); }));
}

py::dict traffic(const BackendPointer& backend) {
  Traffic counters;
  {
    const py::gil_scoped_release released;
    counters = with_torch_errors([&] { return own(backend).communicator().traffic(); });
  }
  py::dict result;
  result["payload_bytes_sent"] = counters.payload_bytes_sent;
  result["header_bytes_sent"] = counters.header_bytes_sent;
  result["shared_bytes_sent"] = counters.shared_bytes_sent;
  return result;
}

std::string choose(const Policy& policy, const std::string& name, const at::Tensor& tensor, std::uint64_t step) {
  const TensorInfo info{.name = name,
                        .count = static_cast<std::uint64_t>(tensor.numel()),
                        .dimensions = static_cast<int>(tensor.dim()),
                        .type = elements_of(tensor).type};
  return policy.choose(info, step).to_string();
}

// `compression` is the text of a compression; "" selects the group's.
CompressedPart make_part(const at::Tensor& tensor, const std::string& compression,
                         const std::optional<ErrorFeedback>& feedback) {
  CompressedPart part{tensor};
  if (!compression.empty()) part.compression = with_torch_errors([&] { return Compression::parse(compression); });
  if (feedback) part.feedback = *feedback;
  return part;
}

// Each tensor has a compression and optional error feedback at its index.
c10::intrusive_ptr<c10d::Work> all_reduce_parts(const BackendPointer& backend, const at::Tensor& whole,
                                                const std::vector<at::Tensor>& tensors,
                                                const std::vector<std::string>& compressions,
                                                const std::vector<std::optional<ErrorFeedback>>& feedbacks,
                                                const c10d::ReduceOp& op, bool asynchronous) {
  std::vector<CompressedPart> parts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    parts.push_back(make_part(tensors[i], compressions.at(i), feedbacks.at(i)));
  }
  return own(backend).all_reduce_parts(parts, whole, op, asynchronous);
}

c10::intrusive_ptr<c10d::Work> reduce_scatter(const BackendPointer& backend, const at::Tensor& output,
                                              const at::Tensor& input, const std::string& compression,
                                              const std::optional<ErrorFeedback>& feedback, const c10d::ReduceOp& op,
                                              bool asynchronous) {
  return own(backend).reduce_scatter_part(make_part(input, compression, feedback), output, op, asynchronous);
}

at::Tensor residual_of(const ErrorFeedback& feedback) {
  const std::span<float> residual = with_torch_errors([&] { return feedback.residual(); });
  return at::from_blob(
      residual.data(), {static_cast<std::int64_t>(residual.size())}, [feedback](void*) {},
      at::TensorOptions(at::kFloat));
}

py::bytes save(const ErrorFeedback& feedback) {
  const auto saved = with_torch_errors([&] { return feedback.save(); });
  return {reinterpret_cast<const char*>(saved.data()), saved.size()};
}

ErrorFeedback restore(const py::bytes& saved) {
  const std::string_view text(saved);
  return with_torch_errors([&] { return ErrorFeedback::restore(std::as_bytes(std::span(text.data(), text.size()))); });
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
  std::shared_ptr<void> memory = with_torch_errors([&] { return own(backend).communicator().allocate_bytes(bytes); });
  void* const data = memory.get();
  return at::from_blob(
      data, size, [memory = std::move(memory)](void*) mutable { memory.reset(); }, at::TensorOptions(type));
}

void onebit_all_reduce(const BackendPointer& backend, const at::Tensor& buffer, const at::Tensor& worker_error,
                       const at::Tensor& server_error) {
  compressed_allreduce(own(backend).communicator(), buffer, worker_error, server_error);
}

qccl::Launch find_launch(std::optional<int> rank, std::optional<int> world, std::uint16_t port,
                         std::optional<std::int64_t> timeout_ms) {
  qccl::InitOptions options;
  options.rank = rank;
  options.world = world;
  if (timeout_ms) options.init_timeout = std::chrono::milliseconds(*timeout_ms);
  return with_torch_errors([&] { return qccl::find_launch(options, port); });
}

std::string describe(const BackendPointer& backend) {
  return with_torch_errors([&] { return own(backend).communicator().describe(); });
}

void close_all(std::int64_t limit_ms) {
  constexpr std::chrono::milliseconds kStopLimit{2000};
  for (const auto& world : WorldRegistry::instance().all()) world->close_all(std::chrono::milliseconds(limit_ms));
  WorldRegistry::instance().end_threads(kStopLimit);
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
}  // namespace qccl::torch_binding

PYBIND11_MODULE(_C, module) {
  using namespace qccl::torch_binding;
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<GroupRequest>(module, "GroupRequest")
      .def(py::init(&make_request), py::kw_only(), py::arg("store"), py::arg("rank"), py::arg("global_ranks"),
           py::arg("name"), py::arg("timeout_ms"), py::arg("compression"), py::arg("error_feedback"),
           py::arg("all_gather_compression"), py::arg("trace_dump"));
  py::class_<OrderedFuture, torch::jit::PythonFutureWrapper, std::shared_ptr<OrderedFuture>>(module, "Future")
      .def("then", &OrderedFuture::then)
      .def("add_done_callback", &OrderedFuture::add_done_callback)
      .def("wait", &OrderedFuture::wait, Released());
  py::class_<CollectiveWork, c10::intrusive_ptr<CollectiveWork>, c10d::Work>(module, "Work")
      .def("get_future",
           [](const c10::intrusive_ptr<CollectiveWork>& work) {
             return std::make_shared<OrderedFuture>(work->getFuture(), work->share()->order, work->share()->pool);
           })
      .def("abort", &CollectiveWork::abort, Released());
  module.def("join_existing", &join_existing, Released());
  module.def("join_new", &join_new, Released());
  module.def("set_compression", &set_compression, Released());
  module.def("check_compression", [](const std::string& spec) {
    return with_torch_errors([&] { return qccl::Compression::parse(spec).to_string(); });
  });
  py::class_<qccl::Policy>(module, "Policy")
      .def(py::init(
          [](const std::string& text) { return with_torch_errors([&] { return qccl::Policy::parse(text); }); }))
      .def("__str__", &qccl::Policy::to_string)
      .def("choose", &choose);
  py::class_<qccl::ErrorFeedback>(module, "ErrorFeedback")
      .def(py::init([](std::size_t count, std::uint64_t counter) {
             return with_torch_errors([&] { return qccl::ErrorFeedback(count, counter); });
           }),
           py::arg("count"), py::arg("counter") = 0)
      .def_static("restore", &restore)
      .def("save", &save)
      .def_property_readonly("size", &qccl::ErrorFeedback::size)
      .def_property_readonly(
          "counter",
          [](const qccl::ErrorFeedback& feedback) { return with_torch_errors([&] { return feedback.counter(); }); })
      .def_property_readonly(
          "is_tainted",
          [](const qccl::ErrorFeedback& feedback) { return with_torch_errors([&] { return feedback.is_tainted(); }); })
      .def_property_readonly("residual", &residual_of)
      .def("reset", [](qccl::ErrorFeedback& feedback) { with_torch_errors([&] { feedback.reset(); }); })
      .def(
          "reset",
          [](qccl::ErrorFeedback& feedback, std::size_t begin, std::size_t count) {
            with_torch_errors([&] { feedback.reset(begin, count); });
          },
          py::arg("begin"), py::arg("count"));
  module.def("all_reduce_parts", &all_reduce_parts, py::arg("backend"), py::arg("whole"), py::arg("tensors"),
             py::arg("compressions"), py::arg("feedbacks"), py::arg("op"), py::arg("asynchronous"), Released());
  module.def("reduce_scatter", &reduce_scatter, py::arg("backend"), py::arg("output"), py::arg("input"),
             py::arg("compression"), py::arg("feedback"), py::arg("op"), py::arg("asynchronous"), Released());
  module.def("hook_future", &hook_future, py::arg("work"), py::arg("share_work"), py::arg("share"), Released());
  module.def("compressed_allreduce", &onebit_all_reduce, Released());
  module.def("empty", &empty, Released());
  module.def("traffic", &traffic);
  module.def("describe", &describe, Released());
  module.def(
      "trace", [](const BackendPointer& backend) { return own(backend).world().trace()->to_json(); }, Released());
  // torch 2.13 has no Python binding for it.
  module.def("get_error", [](const BackendPointer& backend) { return static_cast<int>(own(backend).getError()); });
  define_log(module);
  module.def("close_all", &close_all, Released());
  bind_launch(module);
  module.def("version", &qccl::version);
  bind_mesh(module);
}
