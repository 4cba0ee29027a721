// Kernels over the fake driver, and the images that are built in.
#include "device/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>

#include "base/expect_failure.h"
#include "kernels/device/job_list.h"
#include "kernels/minmax/minmax.h"
#include "support/fake_cuda/fake_cuda.h"

namespace qccl::device {
namespace {

using kernels::device::Entry;
using kernels::device::PayloadKind;
using kernels::device::SliceJob;

constexpr const char* kImages[] = {"cubins", "ptx"};  // the fake takes anything
constexpr KernelImages kFakeImages{kImages[0], kImages[1], 9, "90"};

class KernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    runtime_ = Runtime::open().take_or_throw();
    device_ = runtime_->device(0).take_or_throw();
    stream_ = Stream::create(*device_).take_or_throw();
  }
  void TearDown() override { EXPECT_EQ(fake::take_misuses(), std::vector<std::string>{}); }

  std::unique_ptr<Kernels> load() { return Kernels::load(*device_, kFakeImages).take_or_throw(); }

  void wait_for_stream() {
    const auto event = Event::create(*device_).take_or_throw();
    event->record(stream_->handle()).take_or_throw();
    while (!event->has_happened().take_or_throw()) std::this_thread::yield();
  }

  void expect_the_hosts_payload(const KernelImages& images);

  std::unique_ptr<Runtime> runtime_;
  Device* device_ = nullptr;
  std::unique_ptr<Stream> stream_;
};

// A job behind the work of its stream, on memory of the device and pinned.
void KernelsTest::expect_the_hosts_payload(const KernelImages& images) {
  constexpr std::uint32_t kCount = 5000;
  constexpr kernels::MinmaxFormat kFormat{.bits = 4, .bucket_size = 1024};
  const std::size_t bytes = kernels::minmax_encoded_bytes(kFormat, kCount);
  const auto kernels = Kernels::load(*device_, images).take_or_throw();
  const auto pinned = PinnedMemory::allocate(*device_, bytes).take_or_throw();
  auto* const values = static_cast<float*>(fake::allocate(fake::Kind::device, kCount * sizeof(float)));
  std::vector<float> input(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) input[i] = static_cast<float>(i * 7919 % 1000) - 300.5f;

  SliceJob job{.count = kCount, .source_count = 1, .payload_count = 1};
  job.format = {.kind = PayloadKind::minmax, .bits = 4, .bucket = 1024};
  job.sources[0].data = values;
  job.payloads[0] = pinned->data();
  job.output = values;
  job.outputs_sent = true;
  fake::write(stream_->handle(), values, input.data(), kCount * sizeof(float));
  kernels->launch(*stream_, Entry::minmax, {&job, 1}, 3).take_or_throw();
  wait_for_stream();

  std::vector<std::byte> payload(bytes);
  std::vector<float> decoded(kCount), output(kCount);
  kernels::minmax_encode(kFormat, input.data(), kCount, payload.data());
  kernels::minmax_decode(kFormat, payload.data(), nullptr, decoded.data(), kCount);
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), pinned->data()));
  fake::read(stream_->handle(), values, output.data(), kCount * sizeof(float));
  EXPECT_EQ(output, decoded);
  fake::free(values);
}

TEST_F(KernelsTest, bodies_on_the_host_run_behind_the_work_of_their_stream) { expect_the_hosts_payload(kFakeImages); }

TEST_F(KernelsTest, compiled_kernels_run_behind_the_work_of_their_stream) {
  const KernelImages images = built_in_kernels();
  if (images.empty()) GTEST_SKIP() << "built without CUDA's nvcc";
  expect_the_hosts_payload(images);
  setenv("FAKE_CUDA_KERNELS", "host", 1);
  expect_the_hosts_payload(images);
  unsetenv("FAKE_CUDA_KERNELS");
}

// A sum of two arrays in place of the second, of which all but one element was written.
TEST_F(KernelsTest, compiled_kernels_that_read_what_nothing_wrote_are_misuses) {
  constexpr std::uint32_t kCount = 100;
  if (built_in_kernels().empty()) GTEST_SKIP() << "built without CUDA's nvcc";
  const auto kernels = Kernels::load(*device_, built_in_kernels()).take_or_throw();
  const std::vector<float> ones(kCount, 1);
  for (const std::uint32_t missing : {0u, 41u, kCount - 1, kCount}) {
    auto* const from = static_cast<float*>(fake::allocate(fake::Kind::device, kCount * sizeof(float)));
    auto* const to = static_cast<float*>(fake::allocate(fake::Kind::device, kCount * sizeof(float)));
    fake::write(stream_->handle(), from, ones.data(), missing * sizeof(float));
    if (missing < kCount) {
      fake::write(stream_->handle(), from + missing + 1, ones.data(), (kCount - missing - 1) * sizeof(float));
    }
    fake::write(stream_->handle(), to, ones.data(), kCount * sizeof(float));
    SliceJob job{.count = kCount, .source_count = 2};
    job.sources[0].data = from;
    job.sources[1].data = job.output = to;
    kernels->launch(*stream_, Entry::own_type, {&job, 1}, 1).take_or_throw();
    wait_for_stream();
    const std::vector<std::string> misuses = fake::take_misuses();
    EXPECT_EQ(misuses.size(), missing < kCount ? 1u : 0u) << missing;
    for (const std::string& each : misuses) EXPECT_NE(each.find("read before anything is written"), std::string::npos);
    fake::free(from);
    fake::free(to);
  }
}

TEST_F(KernelsTest, more_jobs_than_a_launch_takes_are_launched_in_several) {
  constexpr std::uint32_t kCount = 2 * kernels::device::kMostListed + 3;
  const auto kernels = load();
  const auto pinned = PinnedMemory::allocate(*device_, kCount * sizeof(float)).take_or_throw();
  auto* const values = reinterpret_cast<float*>(pinned->data());
  std::vector<SliceJob> jobs(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<float>(i);
    jobs[i] = SliceJob{.count = 1, .source_count = 2};
    jobs[i].sources[0].data = jobs[i].sources[1].data = values + i;
    jobs[i].output = values + i;
  }
  const std::size_t before = fake::launches();
  kernels->launch(*stream_, Entry::own_type, jobs, 2).take_or_throw();
  jobs.assign(kCount, SliceJob{});
  wait_for_stream();
  EXPECT_EQ(fake::launches() - before, 3u);
  for (std::uint32_t i = 0; i < kCount; ++i) EXPECT_EQ(values[i], 2 * static_cast<float>(i)) << i;
}

TEST_F(KernelsTest, launches_with_wrong_memory_or_kernels_are_misuses) {
  const auto kernels = load();
  std::vector<float> own(100);
  SliceJob job{.count = 100, .source_count = 1};
  job.sources[0].data = own.data();
  kernels->launch(*stream_, Entry::own_type, {&job, 1}, 1).take_or_throw();
  wait_for_stream();
  kernels->launch(*stream_, Entry::sign, {&job, 1}, 1).take_or_throw();
  wait_for_stream();
  const std::vector<std::string> expected = {"a job names memory that is not the device's or pinned",
                                             "a job is launched on another kernel than its own",
                                             "a job names memory that is not the device's or pinned"};
  EXPECT_EQ(fake::take_misuses(), expected);
}

TEST_F(KernelsTest, a_driver_of_cuda_13_takes_the_cubins_and_others_the_ptx) {
  const auto loaded = [&] {
    const auto kernels = load();
    return fake::loaded_images();
  };
  EXPECT_EQ(loaded(), std::vector<const void*>{kImages[1]});
  fake::set_driver_version(13000);
  EXPECT_EQ(loaded(), std::vector<const void*>{kImages[0]});
  for (const Code code :
       {Code::no_binary_for_gpu, Code::invalid_image, Code::unsupported_ptx_version, Code::jit_compilation_disabled}) {
    fake::fail("cuModuleLoadData", code);
    EXPECT_EQ(loaded(), std::vector<const void*>{kImages[1]}) << static_cast<int>(code);
  }
  for (const Code code : {Code::out_of_memory, Code::invalid_context, static_cast<Code>(700)}) {
    fake::fail("cuModuleLoadData", code);
    EXPECT_FALSE(Kernels::load(*device_, kFakeImages).ok()) << "PTX does not help with " << static_cast<int>(code);
  }
  fake::set_driver_version(kDriverVersion);
  EXPECT_TRUE(fake::loaded_images().empty());
}

TEST(MachineCode, runs_on_devices_of_its_generation_that_are_not_older) {
  constexpr KernelImages kTwo{kImages[0], kImages[1], 9, "86, 120"};
  const auto has = [&](int major, int minor, int driver = 13000) {
    return has_machine_code(kTwo, {.name = "", .compute_major = major, .compute_minor = minor}, driver);
  };
  EXPECT_TRUE(has(8, 6));
  EXPECT_TRUE(has(8, 9));
  EXPECT_TRUE(has(12, 0));
  EXPECT_FALSE(has(8, 0));
  EXPECT_FALSE(has(9, 0));
  EXPECT_FALSE(has(12, 0, 12090)) << "that driver reads none";
  EXPECT_FALSE(has_machine_code({}, {}, 13000));
}

TEST_F(KernelsTest, failures_to_load_and_to_launch_name_the_function) {
  expect_failure(Kernels::load(*device_, {}), ErrorKind::unsupported, "nvcc");
  fake::fail("cuModuleLoadData", Code::out_of_memory);
  expect_failure(Kernels::load(*device_, kFakeImages), ErrorKind::resource_exhausted, "device 0: cuModuleLoadData");
  fake::fail("cuModuleGetFunction", Code::not_found, 2);
  expect_failure(Kernels::load(*device_, kFakeImages), ErrorKind::aborted, "device 0: cuModuleGetFunction");
  EXPECT_TRUE(fake::loaded_images().empty());
  const auto kernels = load();
  const SliceJob nothing{};
  fake::fail("cuLaunchKernel", Code::invalid_value);
  expect_failure(kernels->launch(*stream_, Entry::own_type, {&nothing, 1}, 1), ErrorKind::invalid_argument,
                 "device 0: cuLaunchKernel");
}

// ---- the built-in images

class BuiltInKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (images_.empty()) GTEST_SKIP() << "built without CUDA's nvcc";
  }
  const KernelImages images_ = built_in_kernels();
};

TEST_F(BuiltInKernels, take_eight_megabytes_at_most) {
  EXPECT_LE(images_.bytes, std::size_t{8} << 20) << "cubins for " << images_.architectures;
  EXPECT_EQ(images_.bytes, std::strlen(images_.ptx) + 1 +
                               static_cast<std::size_t>(images_.ptx - static_cast<const char*>(images_.cubins)));
}

// The operation of a line of PTX: "mul.rn.f32"; "" if it is none on floats.
std::string float_operation(const std::string& line) {
  std::size_t begin = line.find_first_not_of(" \t{");
  if (begin != std::string::npos && line[begin] == '@') begin = line.find_first_not_of(" \t", line.find(' ', begin));
  if (begin == std::string::npos) return "";
  const std::string operation = line.substr(begin, line.find_first_of(" \t;", begin) - begin);
  const bool on_floats = operation.find(".f32") != std::string::npos || operation.find(".f64") != std::string::npos;
  return on_floats ? operation : "";
}

// Whether it gives the bits of the host's operation.
bool is_exact(const std::string& operation) {
  for (const char* loose : {".ftz", ".approx", ".full", ".sat"}) {
    if (operation.find(loose) != std::string::npos) return false;
  }
  const std::string name = operation.substr(0, operation.find('.'));
  constexpr const char* kRounded[] = {"add", "sub", "mul", "div", "sqrt", "rcp"};
  if (std::ranges::find(kRounded, name) != std::end(kRounded)) return operation.find(".rn.") != std::string::npos;
  constexpr const char* kUnrounded[] = {"mov", "ld", "st", "setp", "selp", "abs", "neg", "cvt", "min", "max", "testp"};
  return std::ranges::find(kUnrounded, name) != std::end(kUnrounded);  // never fma or mad
}

TEST_F(BuiltInKernels, compute_with_single_operations_rounded_to_nearest) {
  int operations = 0;
  std::istringstream text(images_.ptx);
  for (std::string line; std::getline(text, line);) {
    const std::string operation = float_operation(line);
    if (operation.empty()) continue;
    ++operations;
    EXPECT_TRUE(is_exact(operation)) << line;
  }
  EXPECT_GT(operations, 100);
}

// Only what is not copied into them uses the stack: unaligned runs and tails.
TEST_F(BuiltInKernels, keep_their_octets_in_registers) {
  std::istringstream text(images_.ptx);
  std::string entry;
  for (std::string line; std::getline(text, line);) {
    if (line.find(".entry ") != std::string::npos) entry = line;
    if (line.starts_with("}")) entry.clear();
    EXPECT_TRUE(entry.empty() || line.find(".local") == std::string::npos) << entry << line;
  }
}

TEST_F(BuiltInKernels, say_that_they_are_of_an_old_ptx_and_have_every_entry) {
  const std::string text = images_.ptx;
  EXPECT_NE(text.find("\n.version 7.0\n.target sm_75\n"), std::string::npos) << text.substr(0, 400);
  for (const char* name : kernels::device::kEntryNames) {
    EXPECT_NE(text.find(std::string(".entry ") + name), std::string::npos) << name;
  }
}

TEST(PtxLines, are_judged_by_their_operation) {
  EXPECT_EQ(float_operation("\tadd.rn.f32 \t%f1, %f2, %f3;"), "add.rn.f32");
  EXPECT_EQ(float_operation("\t@%p1 fma.rn.f32 %f1, %f2, %f3, %f4;"), "fma.rn.f32");
  EXPECT_EQ(float_operation("\tmad.lo.s32 %r1, %r2, %r3, %r4;"), "");
  EXPECT_TRUE(is_exact("add.rn.f32"));
  EXPECT_TRUE(is_exact("st.global.f32"));
  for (const char* loose :
       {"add.f32", "fma.rn.f32", "mad.rn.f64", "mul.rn.ftz.f32", "div.approx.f32", "ex2.approx.f32"}) {
    EXPECT_FALSE(is_exact(loose)) << loose;
  }
}

}  // namespace
}  // namespace qccl::device
