#include "sparse.h"

#include <ATen/Functions.h>

#include <sstream>
#include <string>
#include <utility>

#include "errors.h"

namespace qccl::torch_binding {
namespace {

// What every rank says of its tensor: kHeader numbers, and the size.
constexpr std::int64_t kSparseDim = 0;
constexpr std::int64_t kDenseDim = 1;
constexpr std::int64_t kElements = 2;
constexpr std::int64_t kHeader = 3;

struct Part {
  at::Tensor indices;
  at::Tensor values;
};

struct Exchange {
  SparseReduction reduction;
  Part own;
  at::Tensor shape;         // own
  at::Tensor shapes;        // of each rank
  std::vector<Part> parts;  // of each rank
};

void check_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const char* const operation = "all_reduce of a sparse tensor";
  if (tensor.layout() != at::kSparse) throw_bad_argument(operation, "the layout must be torch.sparse_coo");
  if (!tensor.device().is_cpu()) throw_bad_argument(operation, "the tensor must be on the CPU");
  const bool is_float = at::isFloatingType(tensor.scalar_type()) || tensor.is_complex();
  const bool is_average = op.op_ == c10d::ReduceOp::AVG || op.op_ == c10d::ReduceOp::PREMUL_SUM;
  if (op.op_ != c10d::ReduceOp::SUM && !is_average) throw_bad_argument(operation, "only SUM, AVG and PREMUL_SUM exist");
  if (is_average && !is_float) throw_bad_argument(operation, "AVG and PREMUL_SUM are for floating point types");
}

// Sums of these are kept in float32 and rounded once.
at::ScalarType sum_type(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type; }

// Coalesced where that loses nothing: it makes less to send.
Part own_part(const SparseReduction& reduction, double factor) {
  const at::ScalarType type = reduction.tensor.scalar_type();
  at::Tensor whole = reduction.tensor.detach();
  if (sum_type(type) == type) whole = whole.coalesce();
  const at::Tensor values = factor == 1 ? whole._values() : (whole._values() * factor).to(type);
  return {whole._indices().contiguous(), values.contiguous()};
}

std::string text_of(const at::Tensor& shape) {
  std::ostringstream text;
  const std::vector<std::int64_t> numbers(shape.const_data_ptr<std::int64_t>(),
                                          shape.const_data_ptr<std::int64_t>() + shape.numel());
  text << "size " << c10::IntArrayRef(numbers).slice(kHeader) << " with " << numbers[kSparseDim]
       << " sparse dimensions";
  return text.str();
}

// All ranks see the same shapes, and fail alike.
void check_shapes(const Exchange& exchange) {
  const at::Tensor first = exchange.shapes[0];
  for (int rank = 1; rank < exchange.reduction.world; ++rank) {
    const at::Tensor other = exchange.shapes[rank];
    at::Tensor same = other.eq(first);
    same[kElements] = true;
    if (same.all().item<bool>()) continue;
    throw_bad_argument("all_reduce of a sparse tensor", "rank 0 of the group has " + text_of(first) + ", rank " +
                                                            std::to_string(rank) + " has " + text_of(other));
  }
}

void make_room(Exchange& exchange) {
  const Part& own = exchange.own;
  for (int rank = 0; rank < exchange.reduction.world; ++rank) {
    if (rank == exchange.reduction.rank) {
      exchange.parts.push_back(own);
      continue;
    }
    const auto elements = exchange.shapes[rank][kElements].item<std::int64_t>();
    std::vector<std::int64_t> size = own.values.sizes().vec();
    size.front() = elements;
    exchange.parts.push_back(
        {at::empty({own.indices.size(0), elements}, own.indices.options()), at::empty(size, own.values.options())});
  }
}

// Nothing but calls of the library here, which end the group if they fail.
qccl::Work post_messages(const Exchange& exchange, Communicator& group) {
  MessageOptions options;
  options.tag = exchange.reduction.tag;
  options.timeout = exchange.reduction.options.timeout;
  group.group_start();
  for (int rank = 0; rank < exchange.reduction.world; ++rank) {
    if (rank == exchange.reduction.rank) continue;
    const Part& part = exchange.parts[static_cast<std::size_t>(rank)];
    for (const auto& [mine, theirs] :
         {std::pair{exchange.own.indices, part.indices}, {exchange.own.values, part.values}}) {
      const Elements elements = elements_of(mine);
      if (mine.numel() > 0)
        group.send_async(mine.const_data_ptr(), elements.count_in(mine), elements.type, rank, options);
      if (theirs.numel() == 0) continue;
      group.recv_async(theirs.mutable_data_ptr(), elements.count_in(theirs), elements.type, rank, options);
    }
  }
  return group.group_end();
}

// A rank at a time, in their order: coalesce() alone promises no order for what has one index.
void finish_reduction(Exchange& exchange) {
  const at::Tensor& tensor = exchange.reduction.tensor;
  const at::ScalarType type = sum_type(tensor.scalar_type());
  at::Tensor sum;
  for (const Part& part : exchange.parts) {
    const bool first = !sum.defined();
    const at::Tensor indices = first ? part.indices : at::cat({sum.indices(), part.indices}, 1);
    const at::Tensor values = first ? part.values.to(type) : at::cat({sum.values(), part.values.to(type)});
    sum = at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes()).coalesce();
  }
  at::Tensor values = sum.values();
  if (exchange.reduction.op.op_ == c10d::ReduceOp::AVG) values = values / exchange.reduction.world;
  const at::Tensor result =
      at::_sparse_coo_tensor_unsafe(sum.indices(), values.to(tensor.scalar_type()), tensor.sizes())._coalesced_(true);
  tensor.copy_(result);
}

}  // namespace

Call sparse_all_reduce(SparseReduction reduction) {
  check_sparse(reduction.tensor, reduction.op);
  const at::Tensor tensor = reduction.tensor;
  auto exchange = std::make_shared<Exchange>();
  CallOptions checked = reduction.options;
  reduction_of(tensor, reduction.op, "all_reduce of a sparse tensor", checked);
  exchange->own = own_part(reduction, checked.premul_factor);
  std::vector<std::int64_t> shape{tensor.sparse_dim(), tensor.dense_dim(), exchange->own.indices.size(1)};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  exchange->shape = at::tensor(shape, at::kLong);
  exchange->shapes = at::empty({reduction.world, static_cast<std::int64_t>(shape.size())}, at::kLong);
  exchange->reduction = std::move(reduction);

  Call call{c10d::OpType::_ALLREDUCE_SPARSE, "qccl:sparse_all_reduce", {tensor}, {{tensor}}};
  call.timeout = exchange->reduction.options.timeout.value_or(c10d::kUnsetTimeout);
  call.posts.push_back([exchange](Communicator& group) {
    CallOptions options;
    options.timeout = exchange->reduction.options.timeout;
    return group.all_gather_async(exchange->shape.const_data_ptr(), exchange->shapes.mutable_data_ptr(),
                                  static_cast<std::size_t>(exchange->shape.numel()), DataType::int64, options);
  });
  call.later_post = [exchange](Communicator& group) {
    check_shapes(*exchange);
    make_room(*exchange);
    return post_messages(*exchange, group);
  };
  call.endings.push_back([exchange] { finish_reduction(*exchange); });
  return call;
}

}  // namespace qccl::torch_binding
