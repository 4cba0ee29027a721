// Ranks by named dimensions: 16 ranks as 2 pipeline stages of 4 data-parallel copies of 2 tensor-parallel parts.
//
//   qccl::Mesh mesh(world, {{"pp", 2}, {"dp", 4}, {"tp", 2}});  // ranks that follow each other differ in tp
//   mesh.group("dp").all_reduce(gradient);                      // the ranks that differ from this one in dp alone
//   mesh.group("dp-tp").barrier();                              // in dp and tp
//   if (mesh.coordinate("pp") == 0) read_input();
//
// Megatron-LM writes such a shape in reverse, as an order from the fastest dimension to the slowest:
// MeshShape::ordered("tp-cp-ep-dp-pp", {{"tp", 2}, {"dp", 4}, {"pp", 2}}) is the same mesh.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "qccl/communicator.h"

namespace qccl {

// A dimension of a mesh.
struct Dimension {
  std::string name;  // "dp", "tp", ...
  int size = 1;      // ranks along it
};

// The coordinates of each rank: a value, known without any communication. `along` names one or several dimensions,
// joined by "-", in any order. An unknown dimension throws Error(invalid_argument), which lists the existing ones.
class MeshShape {
 public:
  // From the slowest dimension to the fastest. At least one dimension; sizes are at least 1; names are unique, not
  // empty and contain no "-".
  MeshShape(std::initializer_list<Dimension> dimensions) : MeshShape(std::vector<Dimension>(dimensions)) {}
  explicit MeshShape(std::vector<Dimension> dimensions);
  // `order`: names from the fastest dimension to the slowest, joined by "-". A dimension missing from `sizes` has size
  // 1, and a dimension of size 1 may be missing from the order.
  static MeshShape ordered(std::string_view order, const std::vector<Dimension>& sizes);

  // From the slowest to the fastest.
  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  // The number of ranks.
  int size() const { return size_; }
  int size_of(std::string_view dimension) const;
  int coordinate(int rank, std::string_view dimension) const;

  // The ranks that have the coordinates of `rank` in all dimensions outside `along`, including `rank`, in ascending
  // order. Throws invalid_argument if there is no such rank.
  std::vector<int> group_of(int rank, std::string_view along) const;
  // All such groups, ordered by their first ranks; every rank is in exactly one.
  std::vector<std::vector<int>> groups(std::string_view along) const;

  // "pp=2 x dp=4 x tp=2"
  std::string to_string() const;

 private:
  friend class Mesh;
  std::size_t index_of(std::string_view dimension) const;
  // The dimensions that `along` names.
  std::vector<bool> mask_of(std::string_view along) const;
  // The ranks that share the coordinates of `rank` outside the mask.
  std::vector<int> group_of(int rank, const std::vector<bool>& mask) const;
  std::string name_of_group(int rank, const std::vector<bool>& mask) const;

  std::vector<Dimension> dimensions_;
  std::vector<int> strides_;
  int size_ = 1;
};

// A shape over the ranks of a group, and the groups along its dimensions. One thread at a time.
class Mesh {
 public:
  // Local. Throws invalid_argument, naming both numbers, unless the shape has as many ranks as the group.
  Mesh(Communicator ranks, MeshShape shape);

  // What it was made with.
  const MeshShape& shape() const { return shape_; }
  const Communicator& ranks() const { return ranks_; }
  // This rank's coordinate.
  int coordinate(std::string_view dimension) const { return shape_.coordinate(ranks_.rank(), dimension); }

  // This rank's group along these dimensions, its ranks in ascending order. The first call makes the group: it blocks
  // and throws as Communicator::subgroup() does, and is collective over the members. Later calls return the same group.
  // The group begins with the job's settings.
  Communicator group(std::string_view along);
  // Makes the groups along each of these. Collective over all ranks, which pass the same list; throws as group() does.
  void make_groups(std::initializer_list<std::string_view> alongs);

 private:
  Communicator ranks_;
  MeshShape shape_;
  std::map<std::vector<bool>, Communicator> groups_;  // keyed by the mask of their dimensions
};

}  // namespace qccl
