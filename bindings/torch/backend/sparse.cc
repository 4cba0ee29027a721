#include "backend/sparse.h"

#include <ATen/Functions.h>

#include <optional>
#include <utility>

#include "errors.h"
#include "qccl/sparse.h"

namespace qccl::torch_binding {
namespace {

struct Exchange {
  SparseReduction reduction;
  SparseSum sum;
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

// Complex numbers become pairs, in one more dense dimension.
SparseSum sum_of(const SparseReduction& reduction) {
  const at::Tensor whole = reduction.tensor.detach();
  CallOptions checked = reduction.options;
  const Elements elements = reduction_of(whole, reduction.op, "all_reduce of a sparse tensor", checked);
  const at::Tensor indices = whole._indices().contiguous();
  const at::Tensor values = whole._values().contiguous();
  const auto sparse_dim = static_cast<std::size_t>(whole.sparse_dim());
  SparseView view{.type = elements.type,
                  .indices = {indices.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(indices.numel())},
                  .values = values.const_data_ptr()};
  view.sparse_sizes = whole.sizes().slice(0, sparse_dim).vec();
  view.dense_sizes = whole.sizes().slice(sparse_dim).vec();
  if (elements.parts > 1) view.dense_sizes.push_back(static_cast<std::int64_t>(elements.parts));
  return with_torch_errors([&] {
    return SparseSum(view, reduction.rank, reduction.world, {.op = checked.op, .premul_factor = checked.premul_factor});
  });
}

// May only call the library: a library call that fails ends the group.
qccl::Work post_messages(Exchange& exchange, Communicator& group) {
  MessageOptions options;
  options.tag = exchange.reduction.tag;
  options.timeout = exchange.reduction.options.timeout;
  const SparseSum::Part own = exchange.sum.part(exchange.reduction.rank);
  group.group_start();
  for (int rank = 0; rank < exchange.reduction.world; ++rank) {
    if (rank == exchange.reduction.rank) continue;
    const SparseSum::Part part = exchange.sum.part(rank);
    for (const auto& [mine, theirs] : {std::pair{own.places, part.places}, {own.values, part.values}}) {
      if (!mine.empty()) group.send_async(mine.data(), mine.size(), DataType::uint8, rank, options);
      if (!theirs.empty()) group.recv_async(theirs.data(), theirs.size(), DataType::uint8, rank, options);
    }
  }
  return group.group_end();
}

void finish_reduction(Exchange& exchange) {
  const at::Tensor& tensor = exchange.reduction.tensor;
  const WriteGuard guard(tensor);
  SparseTensor sum = with_torch_errors([&] { return exchange.sum.finish(); });
  const auto elements = static_cast<std::int64_t>(sum.elements());
  std::vector<std::int64_t> size{elements};
  const auto dense = tensor.sizes().slice(static_cast<std::size_t>(tensor.sparse_dim()));
  size.insert(size.end(), dense.begin(), dense.end());
  const at::Tensor indices = at::from_blob(sum.indices.data(), {tensor.sparse_dim(), elements}, at::kLong);
  const at::Tensor values = at::from_blob(sum.values.data(), size, tensor.scalar_type());
  tensor.copy_(at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes())._coalesced_(true));
}

}  // namespace

Call sparse_all_reduce(SparseReduction reduction) {
  check_sparse(reduction.tensor, reduction.op);
  const at::Tensor tensor = reduction.tensor;
  SparseSum sum = sum_of(reduction);
  auto exchange = std::make_shared<Exchange>(Exchange{std::move(reduction), std::move(sum)});
  Call call{c10d::OpType::_ALLREDUCE_SPARSE, "qccl:sparse_all_reduce", {tensor}, {{tensor}}};
  call.timeout = exchange->reduction.options.timeout.value_or(c10d::kUnsetTimeout);
  call.posts.push_back([exchange](Communicator& group) {
    CallOptions options;
    options.timeout = exchange->reduction.options.timeout;
    SparseSum& own = exchange->sum;
    return group.all_gather_async(own.header().data(), own.headers().data(), own.header().size(), DataType::int64,
                                  options);
  });
  call.later_post = [exchange](Communicator& group) {
    exchange->sum.make_room();
    return post_messages(*exchange, group);
  };
  call.endings.push_back([exchange] { finish_reduction(*exchange); });
  return call;
}

}  // namespace qccl::torch_binding
