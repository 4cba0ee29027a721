// The binomial tree from or to a root.
#pragma once

namespace qccl::plan {

// The rank above `rank`, or -1 for the root.
int binomial_parent(int rank, int root, int world);

}  // namespace qccl::plan
