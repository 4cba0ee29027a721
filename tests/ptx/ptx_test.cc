// PTX on the CPU, held against NVIDIA's "PTX ISA": what instructions compute, and what is refused.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/ptx/launch.h"

namespace qccl::ptx {
namespace {

// A kernel with registers of every kind and the 32 bits at `at` in an array of words: its lane's.
std::string kernel(const std::string& body) {
  return R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 k_param_0)
.maxntid 32
{
  .reg .pred %p<9>;
  .reg .b16 %rs<9>;
  .reg .b32 %r<9>;
  .reg .f32 %f<9>;
  .reg .b64 %rd<9>;
  .reg .f64 %fd<9>;
  .shared .align 16 .b8 shared[256];
  .local .align 16 .b8 depot[64];
  ld.param.u64 %rd8, [k_param_0];
  cvta.to.global.u64 %rd8, %rd8;
  mov.u32 %r8, %tid.x;
  mul.wide.u32 %rd7, %r8, 8;
  add.s64 %rd8, %rd8, %rd7;
)" + body +
         "  ret;\n}\n";
}

using Words = std::array<std::uint64_t, kLanes>;

// Each lane's word after a run of the body.
Words run(const std::string& body, Words words = {}, Order order = Order::together) {
  Module module(kernel(body));
  void* memory = words.data();
  void* const parameters[] = {&memory};
  HostMemory global;
  module.launch("k", module.parameters_of("k", parameters), {.order = order}, global);
  return words;
}

std::string fault_of(const std::function<void()>& use) {
  try {
    use();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "no fault";
}
std::string fault_of(const std::string& body, Order order = Order::together) {
  return fault_of([&] { run(body, {}, order); });
}

struct Example {
  std::string body;  // leaves its result in %rd0
  std::uint64_t expected = 0;
};

class Instructions : public ::testing::TestWithParam<Example> {};

TEST_P(Instructions, compute_what_the_isa_says) {
  const Words words = run(GetParam().body + "\n  st.global.u64 [%rd8], %rd0;\n");
  for (const std::uint64_t word : words) ASSERT_EQ(word, GetParam().expected) << GetParam().body;
}

std::string from_32(const std::string& body) { return body + "\n  cvt.u64.u32 %rd0, %r0;"; }
std::string from_16(const std::string& body) { return body + "\n  cvt.u64.u16 %rd0, %rs0;"; }
std::string from_float(const std::string& body) { return body + "\n  mov.b32 %r0, %f0;\n  cvt.u64.u32 %rd0, %r0;"; }
std::string from_double(const std::string& body) { return body + "\n  mov.b64 %rd0, %fd0;"; }
std::string from_predicate(const std::string& body) { return body + "\n  selp.b64 %rd0, 1, 0, %p0;"; }

INSTANTIATE_TEST_SUITE_P(
    Integers, Instructions,
    ::testing::Values(
        Example{from_32("add.s32 %r0, -1, 2;"), 1}, Example{from_32("sub.s32 %r0, 1, 2;"), 0xFFFFFFFF},
        Example{from_16("add.s16 %rs0, -1, -1;"), 0xFFFE},
        Example{from_32("mul.lo.s32 %r0, 0x10001, 0x10001;"), 0x20001},
        Example{"mul.wide.s32 %rd0, -2, 3;", static_cast<std::uint64_t>(-6)},
        Example{"mul.wide.u32 %rd0, 0xFFFFFFFF, 2;", 0x1FFFFFFFE},
        Example{from_32("mul.hi.u32 %r0, 0x80000000, 6;"), 3}, Example{from_32("mad.lo.s32 %r0, 3, 4, -5;"), 7},
        Example{from_32("div.s32 %r0, -7, 2;"), 0xFFFFFFFD}, Example{from_32("rem.u32 %r0, 7, 4;"), 3},
        Example{from_32("min.s32 %r0, -1, 1;"), 0xFFFFFFFF}, Example{from_32("min.u32 %r0, -1, 1;"), 1},
        Example{from_32("shl.b32 %r0, 1, 31;"), 0x80000000}, Example{from_32("shl.b32 %r0, 1, 32;"), 0},
        Example{from_32("shr.u32 %r0, 0x80000000, 40;"), 0}, Example{from_32("shr.s32 %r0, -8, 1;"), 0xFFFFFFFC},
        Example{from_32("shr.s32 %r0, -8, 99;"), 0xFFFFFFFF}, Example{from_16("shr.s16 %rs0, -4, 1;"), 0xFFFE},
        Example{from_32("and.b32 %r0, 0xF0F0, 0xFF;"), 0xF0}, Example{from_32("not.b32 %r0, 0;"), 0xFFFFFFFF},
        Example{from_32("popc.b32 %r0, 0xF0F0;"), 8}, Example{from_32("clz.b32 %r0, 1;"), 31},
        Example{from_32("bfe.u32 %r0, 0xABCD, 4, 8;"), 0xBC},
        Example{from_32("bfe.s32 %r0, 0xABCD, 4, 8;"), 0xFFFFFFBC},
        Example{from_32("bfi.b32 %r0, 0xF, 0, 4, 4;"), 0xF0},
        Example{from_32("prmt.b32 %r0, 0x33221100, 0x77665544, 0x6240;"), 0x66224400},
        Example{from_32("prmt.b32 %r0, 0x80, 0, 0x1118;"), 0x000000FF},
        Example{from_32("lop3.b32 %r0, 0xF0, 0xCC, 0xAA, 0x80;"), 0x80},
        Example{from_32("shf.l.wrap.b32 %r0, 0x80000000, 1, 1;"), 3},
        Example{"add.s64 %rd0, -1, -1;", ~std::uint64_t{1}}, Example{"shr.u64 %rd0, -1, 60;", 15}));

INSTANTIATE_TEST_SUITE_P(
    Conversions, Instructions,
    ::testing::Values(Example{from_16("cvt.s16.s8 %rs0, 0x80;"), 0xFF80},
                      Example{from_16("cvt.u16.u8 %rs0, 0x180;"), 0x80},
                      Example{"cvt.s64.s32 %rd0, -1;", ~std::uint64_t{0}}, Example{"cvt.u64.u32 %rd0, -1;", 0xFFFFFFFF},
                      Example{from_float("cvt.rn.f32.s32 %f0, 16777217;"), 0x4B800000},
                      Example{from_32("mov.f32 %f1, 0f7FC00000;\n cvt.rzi.u32.f32 %r0, %f1;"), 0},
                      Example{from_32("mov.f32 %f1, 0fC0000000;\n cvt.rzi.u32.f32 %r0, %f1;"), 0},
                      Example{from_32("mov.f32 %f1, 0f7F800000;\n cvt.rzi.u32.f32 %r0, %f1;"), 0xFFFFFFFF},
                      Example{from_32("mov.f32 %f1, 0f403FFFFF;\n cvt.rzi.u32.f32 %r0, %f1;"), 2},
                      Example{from_float("mov.f64 %fd1, 0d3FF0000010000001;\n cvt.rn.f32.f64 %f0, %fd1;"), 0x3F800001},
                      Example{from_float("mov.u16 %rs0, 0x0001;\n cvt.f32.f16 %f0, %rs0;"), 0x33800000},
                      Example{from_float("mov.u16 %rs0, 0xFE00;\n cvt.f32.f16 %f0, %rs0;"), 0x7FFFFFFF},
                      Example{from_16("mov.f32 %f1, 0f3F801000;\n cvt.rn.f16.f32 %rs0, %f1;"), 0x3C00},  // to even
                      Example{from_16("mov.f32 %f1, 0f3F803000;\n cvt.rn.f16.f32 %rs0, %f1;"), 0x3C02},
                      Example{from_16("mov.f32 %f1, 0f477FF000;\n cvt.rn.f16.f32 %rs0, %f1;"), 0x7C00},
                      Example{from_16("mov.f32 %f1, 0fFFC00000;\n cvt.rn.f16.f32 %rs0, %f1;"), 0x7FFF},
                      Example{"mov.b64 %rd0, {%r1, 5};\n mov.b64 {%r2, %r3}, %rd0;\n cvt.u64.u32 %rd0, %r3;", 5}));

INSTANTIATE_TEST_SUITE_P(
    Floats, Instructions,
    ::testing::Values(Example{from_float("mul.rn.f32 %f0, 0f3F800001, 0f3F800001;"), 0x3F800002},  // rounded once
                      Example{from_float("sub.rn.f32 %f0, 0f7F800000, 0f7F800000;"),
                              0x7FFFFFFF},  // the NaN of arithmetic
                      Example{from_float("add.rn.f32 %f0, 0fFFC00001, 0f3F800000;"), 0x7FFFFFFF},  // whatever came in
                      Example{from_float("mul.rn.f32 %f0, 0f00800000, 0f3F000000;"), 0x00400000},  // a denormal
                      Example{from_float("neg.f32 %f0, 0f7FC00000;"), 0xFFC00000},
                      Example{from_float("abs.f32 %f0, 0f80000000;"), 0},
                      Example{from_float("rcp.rn.f32 %f0, 0f40400000;"), 0x3EAAAAAB},
                      Example{from_double("sqrt.rn.f64 %fd0, 0d4000000000000000;"), 0x3FF6A09E667F3BCD},
                      Example{from_float("div.rn.f32 %f0, 0f3F800000, 0f80000000;"), 0xFF800000},
                      Example{from_float("min.f32 %f0, 0f00000000, 0f80000000;"), 0x80000000},
                      Example{from_float("max.f32 %f0, 0f7FC00000, 0f3F800000;"), 0x3F800000},
                      Example{from_predicate("setp.lt.f32 %p0, 0f7FC00000, 0f3F800000;"), 0},
                      Example{from_predicate("setp.ltu.f32 %p0, 0f7FC00000, 0f3F800000;"), 1},
                      Example{from_predicate("setp.ne.f32 %p0, 0f7FC00000, 0f7FC00000;"), 0},
                      Example{from_predicate("setp.neu.f32 %p0, 0f7FC00000, 0f7FC00000;"), 1},
                      Example{from_predicate("setp.eq.f32 %p0, 0f00000000, 0f80000000;"), 1},
                      Example{from_predicate("setp.nan.f32 %p0, 0f7FC00000, 0f00000000;"), 1},
                      Example{from_predicate("setp.num.f32 %p0, 0f00000000, 0f7F800000;"), 1}));

// ---- lanes

TEST(Lanes, part_at_a_branch_and_meet_again_in_any_order) {
  const std::string body = R"(
  and.b32 %r0, %r8, 1;
  setp.eq.s32 %p1, %r0, 0;
  mov.u32 %r1, 0;
  @%p1 bra EVEN;
  bra.uni ODD;
EVEN:
  add.s32 %r1, %r1, 100;
  bra.uni JOIN;
ODD:
  add.s32 %r1, %r1, 7;
JOIN:
  shfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, -1;
  setp.eq.s32 %p3, %r8, 31;
  vote.sync.any.pred %p4, %p3, -1;
  selp.b32 %r3, 1000, 0, %p4;
  add.s32 %r2, %r2, %r3;
  cvt.u64.u32 %rd0, %r2;
  st.global.u64 [%rd8], %rd0;
)";
  for (const Order order : {Order::together, Order::forwards, Order::backwards}) {
    const Words words = run(body, {}, order);
    for (std::size_t lane = 0; lane < kLanes; ++lane) EXPECT_EQ(words[lane], lane % 2 == 0 ? 1007u : 1100u) << lane;
  }
}

TEST(Lanes, loop_each_as_often_as_it_wants) {
  const Words words = run(R"(
  mov.u64 %rd0, 0;
  mov.u32 %r0, 0;
LOOP:
  setp.ge.u32 %p0, %r0, %r8;
  @%p0 bra END;
  add.s64 %rd0, %rd0, 2;
  add.s32 %r0, %r0, 1;
  bra.uni LOOP;
END:
  st.global.u64 [%rd8], %rd0;
)");
  for (std::size_t lane = 0; lane < kLanes; ++lane) EXPECT_EQ(words[lane], 2 * lane);
}

// What a barrier between them would prevent: with `together` the lanes still see each other's writes.
TEST(Lanes, see_unwritten_memory_without_a_barrier_if_each_runs_by_itself) {
  const std::string body = R"(
  mov.u32 %r0, shared;
  shl.b32 %r1, %r8, 2;
  add.s32 %r1, %r0, %r1;
  st.shared.u32 [%r1], %r8;
  @BARRIER
  xor.b32 %r2, %r8, 31;
  shl.b32 %r2, %r2, 2;
  add.s32 %r2, %r0, %r2;
  ld.shared.u32 %r3, [%r2];
)";
  const auto with = [&](const std::string& barrier) {
    std::string text = body;
    return text.replace(text.find("@BARRIER"), 8, barrier);
  };
  for (const Order order : {Order::forwards, Order::backwards}) {
    EXPECT_NE(fault_of(with(""), order).find("read before anything is written"), std::string::npos);
    EXPECT_EQ(fault_of(with("bar.warp.sync -1;"), order), "no fault");
  }
}

TEST(Lanes, call_functions_with_parameters_of_their_own) {
  const std::string function = R"(
.func (.param .b32 func_retval0) twice(.param .b32 twice_param_0)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [twice_param_0];
  add.s32 %r2, %r1, %r1;
  st.param.b32 [func_retval0], %r2;
  ret;
}
)";
  const std::string text = kernel(R"(
  { // callseq
  .param .b32 param0;
  st.param.b32 [param0], %r8;
  .param .b32 retval0;
  call.uni (retval0), twice, (param0);
  ld.param.b32 %r1, [retval0];
  }
  cvt.u64.u32 %rd0, %r1;
  st.global.u64 [%rd8], %rd0;
)");
  Module module(text + function);
  Words words{};
  void* memory = words.data();
  void* const parameters[] = {&memory};
  HostMemory global;
  const Counts counts = module.launch("k", module.parameters_of("k", parameters), {}, global);
  for (std::size_t lane = 0; lane < kLanes; ++lane) EXPECT_EQ(words[lane], 2 * lane);
  EXPECT_EQ(counts.instructions, 15u * kLanes);
  EXPECT_EQ(counts.warp_instructions, 15u);
  EXPECT_EQ(counts.accesses, 1u * kLanes);
  EXPECT_EQ(counts.wide_accesses, 0u);
}

// ---- faults

void expect_fault(const std::string& body, const std::string& words) {
  EXPECT_NE(fault_of(body).find(words), std::string::npos) << fault_of(body);
}

TEST(Faults, name_the_line_the_instruction_and_the_thread) {
  const std::string fault = fault_of("  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd8];\n");
  EXPECT_NE(fault.find("PTX line 21, \"ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd8]\", block 0, thread"),
            std::string::npos)
      << fault;
}

TEST(Faults, are_accesses_that_a_device_would_not_forgive) {
  expect_fault("ld.global.u32 %r0, [%rd8+2];", "not aligned");
  expect_fault("st.shared.v2.f32 [shared+4], {%f0, %f1};", "not aligned");
  expect_fault("st.shared.u32 [shared+256], %r8;", "outside of its 256");
  expect_fault("ld.shared.u32 %r0, [shared];", "shared memory [0, 4) is read before anything is written there");
  expect_fault("mov.u64 %rd0, depot;\n ld.local.u8 %rs0, [%rd0+5];", "local memory [5, 6) is read before");
  expect_fault("mov.u64 %rd0, depot;\n cvta.local.u64 %rd0, %rd0;\n ld.u8 %rs0, [%rd0+64];", "outside of its 64");
  expect_fault("mov.u32 %r0, 0;\n div.u32 %r1, 1, %r0;", "a division by zero");
}

TEST(Faults, are_lanes_at_different_barriers) {
  const std::string parted = R"(
  setp.eq.s32 %p0, %r8, 0;
  @%p0 bra OTHER;
  bar.warp.sync -1;
  bra.uni END;
OTHER:
  bar.warp.sync -1;
END:
)";
  expect_fault(parted, "lanes wait at barriers that the others don't reach");
  expect_fault("setp.eq.s32 %p0, %r8, 0;\n @%p0 ret;\n bar.warp.sync -1;", "lanes wait at barriers");
  expect_fault("shfl.sync.bfly.b32 %r1, %r8, 1, 31, 1;", "lanes wait at barriers");
}

TEST(Faults, are_texts_that_are_not_understood) {
  expect_fault("fma.rn.f32 %f0, %f1, %f2, %f3;", "PTX line 21: unknown instruction: fma.rn.f32");
  expect_fault("add.ftz.f32 %f0, %f1, %f2;", "unknown instruction");
  expect_fault("add.s32 %r0, %r1;", "other operands than it has");
  expect_fault("add.s32 %r0, %rd1, 1;", "another width than 32");
  expect_fault("add.s32 %r0, %r77, 1;", "unknown operand: %r77");
  expect_fault("bra NOWHERE;", "no label of the function: NOWHERE");
  expect_fault("{ .param .b32 a; call.uni missing, (a); }", "without a body: missing");
  expect_fault(".global .b8 table[4];", "unknown directive");
  EXPECT_NE(fault_of([] { Module module(".version 7.0\n.visible .entry k("); }).find("ends within"), std::string::npos);
}

}  // namespace
}  // namespace qccl::ptx
