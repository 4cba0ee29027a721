// The two trees of the double binary tree.
#pragma once

namespace qccl::plan {

// The rank above `rank` in tree 0 or 1, or -1 for the root.
int tree_parent(int rank, int tree, int world);

}  // namespace qccl::plan
