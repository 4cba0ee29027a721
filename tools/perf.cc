#include "perf.h"
namespace qccl::tools { int perf_main(const std::vector<std::string>&) { return 1; } }
