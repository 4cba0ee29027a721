// Ranks by named dimensions: 16 ranks as 2 pipeline stages of 4 data-parallel copies of 2 tensor-parallel parts.
//
//   qccl::Mesh mesh(world, {{"pp", 2}, {"dp", 4}, {"tp", 2}});  // ranks that follow each other differ in tp
//   mesh.group("dp").all_reduce(gradient);                      // the ranks that differ from this one in dp alone
//   mesh.group("dp-tp").barrier();                              // in dp and tp
//   if (mesh.coordinate("pp") == 0) read_input();
//
// Megatron-LM writes such a shape the other way round, as an order from the fastest dimension to the slowest:
// MeshShape::ordered("tp-cp-ep-dp-pp", {{"tp", 2}, {"dp", 4}, {"pp", 2}}) is the same mesh.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "qccl/communicator.h"

namespace qccl {

struct Dimension {
  std::string name;
  int size = 1;
};

// Which rank stands where: a value, known without any communication. Functions throw Error(invalid_argument), which
// lists the dimensions there are for one that is unknown. `along` names one or several of them, joined by "-", in
// whatever order.
class MeshShape {
 public:
  // From the slowest to the fastest. At least one; sizes from 1 on; names not empty, without "-", and each once.
  MeshShape(std::initializer_list<Dimension> dimensions) : MeshShape(std::vector<Dimension>(dimensions)) {}
  explicit MeshShape(std::vector<Dimension> dimensions);
  // Of names from the fastest to the slowest, joined by "-". What `sizes` leaves out has the size 1, and what has that
  // size may be left out of the order.
  static MeshShape ordered(std::string_view order, const std::vector<Dimension>& sizes);

  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  // The number of ranks.
  int size() const { return size_; }
  int size_of(std::string_view dimension) const;
  int coordinate(int rank, std::string_view dimension) const;

  // The ranks that differ from this one in the dimensions `along` alone, itself among them, in ascending order.
  std::vector<int> group_of(int rank, std::string_view along) const;
  // All such groups, in the order of their first ranks; every rank is in one.
  std::vector<std::vector<int>> groups(std::string_view along) const;

  // "pp=2 x dp=4 x tp=2"
  std::string to_string() const;

 private:
  friend class Mesh;
  std::size_t place_of(std::string_view dimension) const;
  // Which dimensions `along` names.
  std::vector<bool> mask_of(std::string_view along) const;
  // The group of the ranks that share the coordinates of `rank` outside of the mask.
  std::vector<int> group_of(int rank, const std::vector<bool>& mask) const;
  std::string name_of_group(int rank, const std::vector<bool>& mask) const;

  std::vector<Dimension> dimensions_;
  std::vector<int> strides_;
  int size_ = 1;
};

// A shape over the ranks of a group, and the groups along its dimensions. One thread at a time.
class Mesh {
 public:
  // Local. Throws invalid_argument unless the shape has as many ranks as the group; it names both.
  Mesh(Communicator ranks, MeshShape shape);

  const MeshShape& shape() const { return shape_; }
  const Communicator& ranks() const { return ranks_; }
  // This rank's.
  int coordinate(std::string_view dimension) const { return shape_.coordinate(ranks_.rank(), dimension); }

  // This rank's group along these dimensions, its ranks in ascending order. The first call makes it and is collective
  // over its members; later ones give the same group. Begins with the job's settings.
  Communicator group(std::string_view along);
  // Makes groups along each of these. Collective over all ranks, with the same list.
  void make_groups(std::initializer_list<std::string_view> alongs);

 private:
  Communicator ranks_;
  MeshShape shape_;
  std::map<std::vector<bool>, Communicator> groups_;  // by the dimensions they are along
};

}  // namespace qccl
