// What compressing a tensor costs, for Python: measured (qccl/compression.h) and in the log.
#include <torch/csrc/utils/pybind.h>

#include <string>

#include "backend/backend.h"
#include "qccl/compression.h"
#include "qccl/log.h"
#include "tensors.h"

namespace qccl::torch_binding {
namespace {

EncodingCost measure(const std::string& compression, const at::Tensor& values, std::uint64_t most) {
  return with_torch_errors([&] {
    const bool fits = values.scalar_type() == at::kFloat && values.is_contiguous() && values.device().is_cpu();
    if (!fits) C10_THROW_ERROR(TypeError, "only contiguous float32 tensors in host memory are measured");
    return measure_encoding(Compression::parse(compression),
                            {values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())}, most);
  });
}

void log_gauge(const c10::intrusive_ptr<c10d::Backend>& backend, const py::dict& fields) {
  GaugeRecord gauge;
  visit_fields(gauge, [&]<class T>(const char* key, T& field) {
    if constexpr (std::is_same_v<T, Compression>) {
      field = Compression::parse(fields[key].cast<std::string>());
    } else if (fields.contains(key)) {
      field = fields[key].cast<T>();
    }
  });
  gauge.ended_ns = std::chrono::steady_clock::now().time_since_epoch().count();
  own(backend).communicator().log().add(gauge);
}

}  // namespace

void bind_gauge(py::module_& module) {
  py::class_<EncodingCost>(module, "EncodingCost")
      .def_readonly("elements", &EncodingCost::elements)
      .def_readonly("bytes", &EncodingCost::bytes)
      .def_readonly("squares", &EncodingCost::squares)
      .def_readonly("error_squares", &EncodingCost::error_squares)
      .def_property_readonly("bits", &EncodingCost::bits)
      .def_property_readonly("nmse", &EncodingCost::nmse)
      .def_property_readonly("cosine", &EncodingCost::cosine);
  module.def("measure_encoding", &measure, py::arg("compression"), py::arg("values"), py::arg("most"),
             py::call_guard<py::gil_scoped_release>());
  module.def("log_gauge", &log_gauge);
}

}  // namespace qccl::torch_binding
