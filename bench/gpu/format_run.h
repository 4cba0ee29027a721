// The kernels on one format, against the host's: each of the jobs that a call is made of, over many slices.
//
//   encode   input -> payload                        what a rank sends
//   reduce   input + payload -> payload, output      what the owner of a chunk makes of what arrives, and sends on
//   decode   payload -> output                       what a rank gets back
#pragma once

#include "bench/gpu/formats.h"
#include "bench/gpu/slab.h"
#include "device/kernels.h"
#include "kernels/device/job_case.h"

namespace qccl::bench::gpu {

namespace slices = kernels::device;

struct RunSettings {
  std::size_t elements;
  std::size_t slice_elements;
  unsigned threads;
  int samples;
  double copy_GBps;              // bytes moved by a copy on the device: read and written
  unsigned full_grid;            // blocks
  std::vector<unsigned> blocks;  // beside the full grid; none: bytes are compared, and nothing is timed
};

// The name of a rate with so many blocks.
inline std::string rate_with(unsigned blocks) { return fmt::format("GBps_{}_blocks", blocks); }

enum class Pass { encode, reduce, decode };
inline constexpr Pass kPasses[] = {Pass::encode, Pass::reduce, Pass::decode};
inline const char* name_of(Pass pass) {
  return pass == Pass::encode ? "encode" : pass == Pass::reduce ? "reduce" : "decode";
}

class FormatRun {
 public:
  FormatRun(Gpu& gpu, const device::Kernels& kernels, const Format& format, const RunSettings& settings)
      : gpu_(gpu),
        kernels_(kernels),
        format_(format),
        settings_(settings),
        slices_((settings.elements + settings.slice_elements - 1) / settings.slice_elements),
        input_(gpu, slices_, raw_bytes()),
        other_(gpu, slices_, raw_bytes()),
        residual_(gpu, format.has_residual ? slices_ : 0, settings.slice_elements * sizeof(float)),
        sent_(gpu, slices_, full_payload_bytes()),
        result_(gpu, slices_, full_payload_bytes()),
        output_(gpu, slices_, raw_bytes()),
        jobs_(slices_) {}

  // The names of the kernels of the passes.
  static std::vector<std::string> kernels_of(const Format& format) {
    std::vector<std::string> names;
    for (const Pass pass : kPasses) {
      slices::SliceJob job{.type = format.type, .moves = moves(pass, format)};
      job.format = format.payload;
      job.payload_count = pass == Pass::decode ? 0 : 1;
      slices::each_program(slices::entry(job), {&job, 1}, [&](slices::Entry program) {
        names.push_back(slices::kEntryNames[static_cast<std::size_t>(program)]);
      });
    }
    return names;
  }

  // A row for each pass; without rates if bytes differ. `plants` changes a byte of the first.
  Json run(bool plants) {
    make_inputs();
    Json rows = Json::array();
    for (const Pass pass : kPasses) rows.push_back(run(pass, plants && pass == Pass::encode));
    return rows;
  }

 private:
  static bool moves(Pass pass, const Format& format) {
    return pass != Pass::reduce && !slices::is_encoded(format.payload);
  }
  std::size_t raw_bytes() const { return settings_.slice_elements * element_bytes(format_.type); }
  std::size_t full_payload_bytes() const { return slices::payload_bytes(shape(settings_.slice_elements)); }
  std::size_t count_of(std::size_t slice) const {
    return std::min(settings_.slice_elements, settings_.elements - slice * settings_.slice_elements);
  }

  slices::SliceJob shape(std::size_t count) const {
    slices::SliceJob job{.count = static_cast<std::uint32_t>(count), .type = format_.type};
    job.format = format_.payload;
    job.random = {.key = 7, .first_element = 0, .rank = 1, .world = 3};
    return job;
  }

  void make_inputs() {
    const auto families = kernels::families_with_nonfinite();
    in_parallel(slices_, settings_.threads, [&](std::size_t slice) {
      const auto seed = static_cast<std::uint32_t>(slice);
      const auto& family = families[slice % families.size()];
      const auto fill = [&](Slab& slab, DataType type, std::uint32_t salt) {
        const auto made = slices::elements_of(type, family, count_of(slice), 3 * seed + salt);
        std::memcpy(slab.host_at(slice), made.data(), made.size());
      };
      fill(input_, format_.type, 0);
      fill(other_, format_.type, 1);
      if (format_.has_residual) fill(residual_, DataType::float32, 2);
    });
    for (Slab* slab : {&input_, &other_, &residual_}) slab->upload();
    for (Slab* slab : {&sent_, &result_}) slab->poison();
  }

  // `at` gives the place of a slab's slice on the device or on the host.
  template <class At>
  slices::SliceJob job_of(Pass pass, std::size_t slice, At at) {
    slices::SliceJob job = shape(count_of(slice));
    const auto add_source = [&](Slab& slab, slices::SourceKind kind) {
      job.sources[job.source_count++] = {.data = at(slab, slice), .kind = kind};
    };
    if (pass != Pass::decode) add_source(pass == Pass::encode ? input_ : other_, slices::SourceKind::elements);
    if (pass != Pass::encode) add_source(sent_, slices::SourceKind::payload);
    if (pass != Pass::decode) job.payloads[job.payload_count++] = at(pass == Pass::encode ? sent_ : result_, slice);
    if (pass != Pass::encode) job.output = at(output_, slice);
    job.outputs_sent = pass == Pass::reduce && slices::is_encoded(job.format);
    job.finishes = pass == Pass::reduce;
    job.divisor = pass == Pass::reduce && is_floating(format_.type) ? 3 : 0;
    job.moves = moves(pass, format_);
    if (pass == Pass::encode && format_.has_residual) {
      job.residual = reinterpret_cast<float*>(at(residual_, slice));
      job.sources[0].adds_residual = job.keeps_residual = true;
    }
    return job;
  }

  // What the host's kernels write.
  void expect(Pass pass) {
    in_parallel(slices_, settings_.threads, [&](std::size_t slice) {
      const auto on_host = [](Slab& slab, std::size_t index) { return slab.host_at(index); };
      const slices::SliceJob job = job_of(pass, slice, on_host);
      const slices::Written written = slices::Oracle(job).run();
      if (job.payload_count > 0) std::memcpy(job.payloads[0], written.payload.data(), written.payload.size());
      if (job.output != nullptr) std::memcpy(job.output, written.output.data(), written.output.size());
      if (job.keeps_residual) std::memcpy(job.residual, written.residual.data(), job.count * sizeof(float));
    });
  }

  std::optional<Difference> differs(Pass pass, bool plants) {
    std::optional<Difference> found;
    if (pass != Pass::decode) found = (pass == Pass::encode ? sent_ : result_).compare(plants);
    if (!found && pass != Pass::encode) found = output_.compare();
    if (!found && pass == Pass::encode && format_.has_residual) found = residual_.compare();
    return found;
  }

  void launch(unsigned blocks) {
    kernels_.launch(gpu_.stream(), slices::entry(jobs_.front()), jobs_, blocks).take_or_throw();
  }

  std::size_t bytes_moved(Pass pass) {
    const std::size_t raw = settings_.elements * element_bytes(format_.type);
    std::size_t payload = 0;
    for (std::size_t slice = 0; slice < slices_; ++slice) {
      payload += slices::payload_bytes(shape(count_of(slice)), sent_.host_at(slice));
    }
    const std::size_t residual = format_.has_residual && pass == Pass::encode ? 8 * settings_.elements : 0;
    return (pass == Pass::reduce ? 2 : 1) * (raw + payload) + residual;
  }

  Json run(Pass pass, bool plants) {
    output_.poison();
    const auto on_device = [](Slab& slab, std::size_t index) { return slab.device_at(index); };
    for (std::size_t slice = 0; slice < slices_; ++slice) jobs_[slice] = job_of(pass, slice, on_device);
    launch(settings_.full_grid);
    expect(pass);
    gpu_.wait();
    const auto difference = differs(pass, plants);
    Json row = {{"format", format_.name}, {"pass", name_of(pass)}, {"equal", !difference.has_value()}};
    if (difference) row["difference"] = difference->text();
    if (!difference && !settings_.blocks.empty()) time(pass, row);
    return row;
  }

  void time(Pass pass, Json& row) {
    const auto moved = static_cast<double>(bytes_moved(pass));
    const auto rate = [&](unsigned blocks) {
      return moved / 1e9 / gpu_.seconds(settings_.samples, [&] { launch(blocks); });
    };
    const double full = rate(settings_.full_grid);
    row["GBps"] = rounded(full);
    for (const unsigned blocks : settings_.blocks) {
      row[rate_with(blocks)] = rounded(blocks == settings_.full_grid ? full : rate(blocks));
    }
    row["share_of_copy"] = rounded(full / settings_.copy_GBps);
    if (format_.has_residual) sent_.upload();  // each launch has sent another residual
  }

  Gpu& gpu_;
  const device::Kernels& kernels_;
  const Format& format_;
  const RunSettings& settings_;
  const std::size_t slices_;
  Slab input_, other_, residual_, sent_, result_, output_;
  std::vector<slices::SliceJob> jobs_;
};

}  // namespace qccl::bench::gpu
