// The shape of a mesh (qccl/mesh.h) for Python, and pipelines (qccl/pipeline.h) of torch's tensors.
#include <ATen/ops/from_blob.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <utility>

#include "backend/backend.h"
#include "qccl/mesh.h"
#include "qccl/pipeline.h"

namespace qccl::torch_binding {
namespace {

std::vector<Dimension> dimensions_of(const py::dict& sizes) {
  std::vector<Dimension> dimensions;
  for (const auto& [name, size] : sizes) dimensions.push_back({name.cast<std::string>(), size.cast<int>()});
  return dimensions;
}

py::dict sizes_of(const MeshShape& shape) {
  py::dict sizes;
  for (const Dimension& dimension : shape.dimensions()) sizes[py::str(dimension.name)] = dimension.size;
  return sizes;
}

constexpr const char* kPipeline = "pipeline";

class TorchPipeline {
 public:
  using OptionalTensor = std::optional<at::Tensor>;

  TorchPipeline(const c10::intrusive_ptr<c10d::Backend>& group, bool variable_shapes, const std::string& compression,
                bool error_feedback)
      : sends_shapes_(variable_shapes),
        group_(own(group).communicator()),
        pipeline_(group_, {.variable_shapes = variable_shapes,
                           .compression = Compression::parse(compression),
                           .error_feedback = error_feedback}) {}

  // Moves the tensors that are given around the ring of stages. Returns the received ones: those given, or, if shapes
  // are sent, tensors of the shapes that came. Tensors of a device travel as copies; the received ones are on the CPU.
  std::pair<OptionalTensor, OptionalTensor> exchange(const OptionalTensor& to_next, const OptionalTensor& to_prev,
                                                     const OptionalTensor& from_prev, const OptionalTensor& from_next) {
    const OptionalTensor next = sent(to_next), prev = sent(to_prev);
    std::optional<Tensor> send_next = view(next), send_prev = view(prev);
    std::optional<Tensor> recv_prev = view(from_prev), recv_next = view(from_next);
    const auto pointer = [](std::optional<Tensor>& tensor) { return tensor ? &*tensor : nullptr; };
    pipeline_.send_forward_backward_recv_forward_backward(
        {pointer(send_next), pointer(send_prev), pointer(recv_prev), pointer(recv_next)});
    return {received(std::move(recv_prev), from_prev), received(std::move(recv_next), from_next)};
  }

 private:
  OptionalTensor sent(const OptionalTensor& tensor) const {
    if (!tensor) return {};
    check_readable(*tensor, kPipeline);
    if (const auto stream = stream_of({&*tensor, 1}, kPipeline)) open_device(group_, *stream);
    return tensor->detach().cpu().resolve_conj().resolve_neg().contiguous();
  }

  // The library's tensor in the same memory. A type that the library has no name for is bytes, in one more dimension.
  std::optional<Tensor> view(const OptionalTensor& tensor) const {
    if (!tensor) return {};
    const Elements elements = elements_of(*tensor);
    Tensor::Shape shape = tensor->sizes().vec();
    if (!sends_shapes_) {
      shape = {static_cast<std::int64_t>(elements.count_in(*tensor))};
    } else if (elements.parts > 1) {
      shape.push_back(static_cast<std::int64_t>(elements.parts));
    }
    return Tensor(std::move(shape), elements.type, tensor->data_ptr());
  }

  OptionalTensor received(std::optional<Tensor> tensor, const OptionalTensor& room) const {
    if (!tensor || !sends_shapes_) return room;
    const Elements elements = elements_of(*room);
    Tensor::Shape shape = tensor->shape();
    bool fits = tensor->type() == elements.type;
    if (elements.parts > 1) {
      fits = fits && !shape.empty() && shape.back() == static_cast<std::int64_t>(elements.parts);
      if (fits) shape.pop_back();
    }
    require(fits, kPipeline, "received a tensor of ", to_string(tensor->type()), ", expected one of ",
            room->scalar_type());
    const auto memory = std::make_shared<Tensor>(std::move(*tensor));
    return at::from_blob(
        memory->data(), shape, [memory, room](void*) {}, room->options());
  }

  const bool sends_shapes_;
  const Communicator group_;
  Pipeline pipeline_;
};

}  // namespace

void bind_mesh(py::module_& module) {
  py::class_<MeshShape>(module, "MeshShape")
      .def(py::init([](const py::dict& sizes) { return MeshShape(dimensions_of(sizes)); }))
      .def_static("ordered", [](const std::string& order,
                                const py::dict& sizes) { return MeshShape::ordered(order, dimensions_of(sizes)); })
      .def_property_readonly("sizes", &sizes_of)
      .def_property_readonly("size", &MeshShape::size)
      .def("coordinate", &MeshShape::coordinate)
      .def("group_of", py::overload_cast<int, std::string_view>(&MeshShape::group_of, py::const_))
      .def("groups", &MeshShape::groups)
      .def("__str__", &MeshShape::to_string)
      .def("__repr__", [](const MeshShape& shape) { return "MeshShape(" + shape.to_string() + ")"; });
}

void bind_pipeline(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<TorchPipeline>(module, "Pipeline")
      .def(py::init<const c10::intrusive_ptr<c10d::Backend>&, bool, const std::string&, bool>(), Released())
      .def("exchange", &TorchPipeline::exchange, Released());
}

}  // namespace qccl::torch_binding
