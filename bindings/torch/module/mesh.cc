#include "module/mesh.h"

#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "qccl/mesh.h"

namespace qccl::torch_binding {
namespace {

namespace py = pybind11;

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

}  // namespace

void bind_mesh(py::module_& module) {
  using Along = const std::string&;
  py::class_<MeshShape>(module, "MeshShape")
      .def(py::init(
          [](const py::dict& sizes) { return with_torch_errors([&] { return MeshShape(dimensions_of(sizes)); }); }))
      .def_static("ordered",
                  [](const std::string& order, const py::dict& sizes) {
                    return with_torch_errors([&] { return MeshShape::ordered(order, dimensions_of(sizes)); });
                  })
      .def_property_readonly("sizes", &sizes_of)
      .def_property_readonly("size", &MeshShape::size)
      .def("coordinate",
           [](const MeshShape& shape, int rank, Along dimension) {
             return with_torch_errors([&] { return shape.coordinate(rank, dimension); });
           })
      .def("group_of", [](const MeshShape& shape, int rank,
                          Along along) { return with_torch_errors([&] { return shape.group_of(rank, along); }); })
      .def("groups",
           [](const MeshShape& shape, Along along) { return with_torch_errors([&] { return shape.groups(along); }); })
      .def("__str__", &MeshShape::to_string)
      .def("__repr__", [](const MeshShape& shape) { return "MeshShape(" + shape.to_string() + ")"; });
}

}  // namespace qccl::torch_binding
