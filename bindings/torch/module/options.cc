// qccl.Options for Python.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>

#include "group_options.h"

namespace qccl::torch_binding {
namespace {

using OptionsPointer = c10::intrusive_ptr<GroupOptions>;
using OptionalText = std::optional<std::string>;
using OptionalCompression = std::optional<Compression>;

constexpr const char* kDescription =
    R"(Settings of a process group: for `pg_options` and wherever else torch takes a backend's options.

    dist.init_process_group("qccl", pg_options=qccl.Options(compression="minmax:bits=4"))
    init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"),
                     backend_override={"dp": qccl.Options(compression="int:bits=8")})

Args:
    compression: how the group's reductions are sent: "none", "cast:type=bf16", "minmax:bits=4,bucket_size=1024" (keys
        may be left out). None: the gradients of DDP and FSDP as QCCL_COMPRESSION says, everything else uncompressed.
    error_feedback: adds the compression error of a tensor to the next tensor at the same address. DDP's gradient
        buckets keep their address (qccl.ddp keeps the error by parameter instead). Costs a float32 for each reduced
        element. It can't be checkpointed: a restarted program loses it.
    all_gather_compression: how all_gathers of floating point tensors of at least 64 KiB per rank are sent, for example
        FSDP's parameters; all ranks then compute with the decoded values. None sends them uncompressed.
    message_compression: how sends and receives of floating point tensors of at least 64 KiB are sent, for example
        activations and their gradients in torch.distributed.pipelining. None: as QCCL_MESSAGE_COMPRESSION says, else
        uncompressed. "none": uncompressed.
    inside: the backend that adds and copies inside the hosts while QCCL carries what goes between them, compressed:
        "gloo", for tensors of the CPU. "qccl", and None: QCCL carries all (docs/gpu-hosts.md).
    timeout: of each operation; overrides the `timeout` of the function that makes the group. None, and torch's default
        of 30 minutes, leave it as it is.

All ranks give the same. Raises ValueError, listing the valid values, for an unknown compression or inside, and
TypeError for a timeout that is not a timedelta.)";

OptionalCompression parsed(const OptionalText& text) {
  return text ? OptionalCompression(Compression::parse(*text)) : std::nullopt;
}

OptionalText text_of(const OptionalCompression& compression) {
  return compression ? OptionalText(compression->to_string()) : std::nullopt;
}

std::string checked_inside(const OptionalText& name) {
  if (!name || *name == "qccl") return "";
  if (*name == "gloo") return *name;
  throw py::value_error("inside must be 'gloo' or 'qccl', got '" + *name + "'");
}

OptionalText inside_of(const GroupOptions& options) {
  const std::string& name = options.settings.inside;
  return name.empty() ? std::nullopt : OptionalText(name);
}

void set_inside(GroupOptions& options, const OptionalText& name) { options.settings.inside = checked_inside(name); }

py::object timeout_of(const GroupOptions& options) { return py::cast(chosen_timeout(options)); }

void set_timeout(GroupOptions& options, const py::object& timeout) {
  if (timeout.is_none()) {
    options.timeout = kBackendDefaultTimeout;
    return;
  }
  if (!py::isinstance(timeout, py::module_::import("datetime").attr("timedelta"))) {
    throw py::type_error("timeout must be a datetime.timedelta, got " + py::repr(timeout).cast<std::string>());
  }
  options.timeout = timeout.cast<std::chrono::milliseconds>();
}

OptionsPointer make(GroupSettings settings, const py::object& timeout) {
  auto options = c10::make_intrusive<GroupOptions>(std::move(settings));
  set_timeout(*options, timeout);
  return options;
}

// The arguments of qccl.Options() that make the same.
py::tuple arguments_of(const GroupOptions& options) {
  const GroupSettings& settings = options.settings;
  return py::make_tuple(text_of(settings.compression), timeout_of(options), settings.error_feedback,
                        text_of(settings.all_gather_compression), text_of(settings.message_compression),
                        inside_of(options));
}

py::object repr_of(const GroupOptions& options) {
  return py::str(
             "qccl.Options(compression={!r}, timeout={!r}, error_feedback={!r}, all_gather_compression={!r}, "
             "message_compression={!r}, inside={!r})")
      .attr("format")(*arguments_of(options));
}

// A program writes `text` to the member.
template <OptionalCompression GroupSettings::*member>
void set(GroupOptions& options, const OptionalText& text) {
  options.settings.*member = parsed(text);
}
template <OptionalCompression GroupSettings::*member>
OptionalText get(const GroupOptions& options) {
  return text_of(options.settings.*member);
}

}  // namespace

void bind_options(py::module_& module) {
  py::class_<GroupOptions, OptionsPointer, c10d::Backend::Options> options(module, "Options", kDescription);
  options
      .def(py::init([](const OptionalText& compression, const py::object& timeout, bool error_feedback,
                       const OptionalText& all_gathers, const OptionalText& messages, const OptionalText& inside) {
             return make(
                 {parsed(compression), error_feedback, parsed(all_gathers), parsed(messages), checked_inside(inside)},
                 timeout);
           }),
           py::arg("compression") = py::none(), py::arg("timeout") = py::none(), py::arg("error_feedback") = false,
           py::arg("all_gather_compression") = py::none(), py::arg("message_compression") = py::none(),
           py::arg("inside") = py::none())
      .def_property("compression", &get<&GroupSettings::compression>, &set<&GroupSettings::compression>)
      .def_property("all_gather_compression", &get<&GroupSettings::all_gather_compression>,
                    &set<&GroupSettings::all_gather_compression>)
      .def_property("message_compression", &get<&GroupSettings::message_compression>,
                    &set<&GroupSettings::message_compression>)
      .def_property(
          "error_feedback", [](const GroupOptions& own) { return own.settings.error_feedback; },
          [](GroupOptions& own, bool error_feedback) { own.settings.error_feedback = error_feedback; })
      .def_property("inside", &inside_of, &set_inside)
      .def_property("timeout", &timeout_of, &set_timeout)
      .def("__repr__", &repr_of)
      .def("__copy__", &GroupOptions::clone)
      .def("__deepcopy__", [](const GroupOptions& own, const py::dict&) { return own.clone(); })
      .def("__reduce__", [](const py::object& own) {
        return py::make_tuple(py::type::of(own), arguments_of(own.cast<GroupOptions&>()));
      });
  options.attr("__module__") = "qccl";
}

}  // namespace qccl::torch_binding
