// The last stage of a pipeline, in C++, for test_pipeline_stages.py: receives a 2 x 3 tensor from the stage before it
// and sends its negative back, three times.
//
//   pipeline_stage FOLDER RANK WORLD variable|known
#include <fcntl.h>
#include <qccl/pipeline.h>
#include <qccl/qccl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace {

// A file for each key, as DirectoryStore in the Python test.
class DirectoryStore final : public qccl::Store {
 public:
  explicit DirectoryStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, const std::string& value) override {
    const auto written = path(key).concat(".written");
    std::ofstream(written, std::ios::binary) << value;
    std::filesystem::rename(written, path(key));
  }

  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(path(key))) {
      if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::ifstream file(path(key), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const int lock = open((folder_ / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    flock(lock, LOCK_EX);
    const std::int64_t sum = std::stoll(get(key, std::chrono::milliseconds(0)).value_or("0")) + delta;
    set(key, std::to_string(sum));
    close(lock);
    return sum;
  }

 private:
  std::filesystem::path path(std::string key) const {
    std::ranges::replace(key, '/', '+');
    return folder_ / key;
  }

  const std::filesystem::path folder_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool variable = std::string(argv[4]) == "variable";
  try {
    auto group = qccl::init({.rank = std::stoi(argv[2]),
                             .world = std::stoi(argv[3]),
                             .store = std::make_shared<DirectoryStore>(argv[1]),
                             .job = "torch/0"});
    qccl::Pipeline pipeline(group, {.variable_shapes = variable});
    for (int step = 0; step < 3; ++step) {
      qccl::Tensor tensor(variable ? qccl::Tensor::Shape{0} : qccl::Tensor::Shape{2, 3});
      pipeline.recv_forward(tensor);
      if (tensor.shape() != qccl::Tensor::Shape{2, 3}) return 3;
      for (float& value : tensor.values<float>()) value = -value;
      pipeline.send_backward(tensor);
    }
    group.close();
  } catch (const qccl::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
