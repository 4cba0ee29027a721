// Calls that need threads which the system refuses.
#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

#include "nccl/job.h"

namespace {

thread_local int threads_until_refusal = -1;  // that this thread may start; negative: any number

}  // namespace

// Sanitizers have to see threads begin.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_until_refusal == 0) return EAGAIN;
  if (threads_until_refusal > 0) --threads_until_refusal;
  return create(thread, attributes, run, argument);
}
#endif

namespace qccl::testing {
namespace {

class RefusedThreads : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers start threads in their own way";
#endif
  }
  void TearDown() override { threads_until_refusal = -1; }
};

TEST_F(RefusedThreads, fail_a_communicator_that_is_made_later) {
  const ncclUniqueId id = make_id();
  ncclComm_t comm = nullptr;
  ncclConfig_t config = make_config(0);
  threads_until_refusal = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclSystemError);
  EXPECT_EQ(comm, nullptr);
}

// Without the second rank the first would wait.
TEST_F(RefusedThreads, fail_a_group_that_makes_communicators) {
  const ncclUniqueId id = make_id();
  ncclComm_t comms[3] = {};
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < 3; ++rank) EXPECT_NCCL(ncclCommInitRank(&comms[rank], 3, id, rank));
  threads_until_refusal = 1;
  EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
  for (const ncclComm_t comm : comms) EXPECT_EQ(comm, nullptr);
}

}  // namespace
}  // namespace qccl::testing
