// Result<T>: a value or an ErrorInfo. Inside the library only std::bad_alloc is thrown; the public API turns both into
// qccl::Error.
#pragma once

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "qccl/error.h"

namespace qccl {

// A failure to be returned to callers. Converts to every Result.
class [[nodiscard]] Failure {
 public:
  explicit Failure(ErrorInfo info) : info_(std::make_unique<ErrorInfo>(std::move(info))) {}
  Failure(ErrorKind kind, std::string message) : info_(std::make_unique<ErrorInfo>()) {
    info_->kind = kind;
    info_->message = std::move(message);
  }
  ErrorInfo& info() { return *info_; }

 private:
  template <class T>
  friend class Result;
  std::unique_ptr<ErrorInfo> info_;
};

template <class T>
class Result;

// No value, only whether it succeeded.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Failure failure) : error_(std::move(failure.info_)) {}

  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const ErrorInfo& error() const { return *error_; }
  // The failure, to return to the caller. Only when !ok().
  Failure failure() { return Failure(std::move(*error_)); }
  // For the public API: throws qccl::Error unless ok().
  void take_or_throw() {
    if (!ok()) throw Error(*error_);
  }

 private:
  std::unique_ptr<ErrorInfo> error_;
};

template <class T>
class [[nodiscard]] Result : public Result<void> {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Failure failure) : Result<void>(std::move(failure)) {}

  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }
  // For the public API: the value, or throws qccl::Error.
  T take_or_throw() {
    Result<void>::take_or_throw();
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
};

using Status = Result<void>;

// Short enough to need no allocation itself.
inline Error memory_error() { return Error({.kind = ErrorKind::resource_exhausted, .message = "QCCL: no memory"}); }

// The result of `call`; throws resource_exhausted if it runs out of memory.
template <class Call>
decltype(auto) memory_checked(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    throw memory_error();
  }
}

}  // namespace qccl

// Returns a failed Status or Result to the caller.
#define QCCL_TRY(expression)                                                                          \
  do {                                                                                                \
    if (auto qccl_try_status = (expression); !qccl_try_status.ok()) return qccl_try_status.failure(); \
  } while (false)

// Takes the value of a Result, or returns its failure to the caller: QCCL_ASSIGN(const auto port, os::local_port(fd));
#define QCCL_ASSIGN(target, ...) QCCL_ASSIGN_FROM(QCCL_JOIN(qccl_result_, __LINE__), target, __VA_ARGS__)
#define QCCL_ASSIGN_FROM(result, target, ...) \
  auto result = (__VA_ARGS__);                \
  if (!result.ok()) return result.failure();  \
  target = std::move(*result)
#define QCCL_JOIN(one, other) QCCL_JOIN_TOKENS(one, other)
#define QCCL_JOIN_TOKENS(one, other) one##other
