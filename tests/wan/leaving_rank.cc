// A rank of tests/process/wan/test_wan.py: meets the others, says so, waits for a line on its standard input, takes
// part in a broadcast from rank 0 and leaves at once, which rank 0 can do before its data has arrived anywhere.
#include <iostream>
#include <string>
#include <vector>

#include "qccl/qccl.h"

int main() {
  constexpr float kValue = 7;
  std::vector<float> values(1 << 16);
  try {
    qccl::Communicator comm = qccl::init();
    if (comm.rank() == 0) values.assign(values.size(), kValue);
    comm.barrier();
    std::cout << "ready" << std::endl;
    std::string line;
    std::getline(std::cin, line);
    comm.broadcast(values, {.root = 0});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  const bool is_right = values.front() == kValue && values.back() == kValue;
  std::cout << (is_right ? "got all" : "got something else") << std::endl;
  return is_right ? 0 : 1;
}
