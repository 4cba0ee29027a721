#include "qccl/mesh.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace qccl {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error({.kind = ErrorKind::invalid_argument, .message = "QCCL mesh: " + what});
}

std::vector<std::string> split_names(std::string_view joined) {
  std::vector<std::string> names;
  for (std::size_t begin = 0;;) {
    const std::size_t end = joined.find('-', begin);
    names.emplace_back(joined.substr(begin, end - begin));
    if (end == std::string_view::npos) return names;
    begin = end + 1;
  }
}

}  // namespace

// ---- MeshShape

MeshShape::MeshShape(std::vector<Dimension> dimensions) : dimensions_(std::move(dimensions)) {
  if (dimensions_.empty()) refuse("a mesh has at least one dimension");
  strides_.resize(dimensions_.size());
  for (std::size_t i = dimensions_.size(); i-- > 0;) {
    const Dimension& own = dimensions_[i];
    if (own.name.empty() || own.name.find('-') != std::string::npos) {
      refuse(fmt::format("'{}' can't be a dimension's name: it must not be empty, nor contain '-'", own.name));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (dimensions_[j].name == own.name) refuse(fmt::format("there are two dimensions '{}'", own.name));
    }
    if (own.size < 1) refuse(fmt::format("dimension {}={}: the size must be at least 1", own.name, own.size));
    if (own.size > std::numeric_limits<int>::max() / size_) refuse(to_string() + " are too many ranks");
    strides_[i] = size_;
    size_ *= own.size;
  }
}

MeshShape MeshShape::ordered(std::string_view order, const std::vector<Dimension>& sizes) {
  std::vector<Dimension> dimensions;
  for (const std::string& name : split_names(order)) dimensions.insert(dimensions.begin(), {name, 1});
  for (const Dimension& given : sizes) {
    bool is_there = false;
    for (Dimension& own : dimensions) {
      if (own.name != given.name) continue;
      own.size = given.size;
      is_there = true;
    }
    if (is_there) continue;
    if (given.size != 1) refuse(fmt::format("dimension {}={} is not in the order '{}'", given.name, given.size, order));
    dimensions.insert(dimensions.begin(), given);
  }
  return MeshShape(std::move(dimensions));
}

std::string MeshShape::to_string() const {
  std::string text;
  for (const Dimension& own : dimensions_) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " x ", own.name, own.size);
  }
  return text;
}

std::size_t MeshShape::index_of(std::string_view dimension) const {
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    if (dimensions_[i].name == dimension) return i;
  }
  refuse(fmt::format("there is no dimension '{}' in {}", dimension, to_string()));
}

std::vector<bool> MeshShape::mask_of(std::string_view along) const {
  std::vector<bool> mask(dimensions_.size());
  for (const std::string& name : split_names(along)) mask[index_of(name)] = true;
  return mask;
}

int MeshShape::size_of(std::string_view dimension) const { return dimensions_[index_of(dimension)].size; }

int MeshShape::coordinate(int rank, std::string_view dimension) const {
  if (rank < 0 || rank >= size_) refuse(fmt::format("there is no rank {} in {}", rank, to_string()));
  const std::size_t index = index_of(dimension);
  return rank / strides_[index] % dimensions_[index].size;
}

std::vector<int> MeshShape::group_of(int rank, const std::vector<bool>& mask) const {
  int first = rank;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i]) first -= rank / strides_[i] % dimensions_[i].size * strides_[i];
  }
  // From the slowest dimension to the fastest, so that ranks ascend.
  std::vector<int> group{first};
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i]) continue;
    std::vector<int> larger;
    for (const int member : group) {
      for (int k = 0; k < dimensions_[i].size; ++k) larger.push_back(member + k * strides_[i]);
    }
    group.swap(larger);
  }
  return group;
}

std::vector<int> MeshShape::group_of(int rank, std::string_view along) const {
  if (rank < 0 || rank >= size_) refuse(fmt::format("there is no rank {} in {}", rank, to_string()));
  return group_of(rank, mask_of(along));
}

std::vector<std::vector<int>> MeshShape::groups(std::string_view along) const {
  const std::vector<bool> mask = mask_of(along);
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < size_; ++rank) {
    std::vector<int> group = group_of(rank, mask);
    if (group.front() == rank) groups.push_back(std::move(group));
  }
  return groups;
}

std::string MeshShape::name_of_group(int rank, const std::vector<bool>& mask) const {
  std::string along;
  std::string coordinates;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const Dimension& own = dimensions_[i];
    if (mask[i]) {
      along += (along.empty() ? "" : "-") + own.name;
    } else {
      coordinates +=
          fmt::format("{}{}={}", coordinates.empty() ? " of " : ",", own.name, rank / strides_[i] % own.size);
    }
  }
  return along + coordinates;
}

// ---- Mesh

Mesh::Mesh(Communicator ranks, MeshShape shape) : ranks_(std::move(ranks)), shape_(std::move(shape)) {
  if (shape_.size() == ranks_.size()) return;
  refuse(fmt::format("{} is for {} ranks, group '{}' has {}", shape_.to_string(), shape_.size(), ranks_.name(),
                     ranks_.size()));
}

Communicator Mesh::group(std::string_view along) {
  const std::vector<bool> mask = shape_.mask_of(along);
  const auto known = groups_.find(mask);
  if (known != groups_.end()) return known->second;
  const int rank = ranks_.rank();
  const Communicator made = ranks_.subgroup(shape_.group_of(rank, mask), shape_.name_of_group(rank, mask));
  groups_.emplace(mask, made);
  return made;
}

void Mesh::make_groups(std::initializer_list<std::string_view> alongs) {
  for (const std::string_view along : alongs) group(along);
}

}  // namespace qccl
