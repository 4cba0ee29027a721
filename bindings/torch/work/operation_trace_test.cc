#include "work/operation_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

namespace qccl::torch_binding {
namespace {

using nlohmann::json;

OperationTrace::Operation all_reduce(std::uint64_t sequence) {
  const std::vector<OperationTrace::Tensor> tensors{{{2, 3}, "Float"}};
  return {.name = "qccl:all_reduce", .sequence = sequence, .timeout_ms = 1000, .inputs = tensors, .outputs = tensors};
}

TEST(OperationTrace, an_operation_is_shown_with_its_group_shapes_and_state) {
  OperationTrace trace(7);
  trace.add_group("first", {7, 8});
  const std::size_t group = trace.add_group("second", {7});
  const auto handle = trace.begin(group, all_reduce(1));
  EXPECT_EQ(json::parse(trace.to_json())["entries"][0]["state"], "started");
  trace.end(handle, "");
  const json shown = json::parse(trace.to_json());
  EXPECT_EQ(shown["rank"], 7);
  EXPECT_EQ(shown["pg_config"]["0"]["ranks"], "[7, 8]");
  EXPECT_EQ(shown["pg_status"]["1"]["last_completed_collective"], "1");
  const json entry = shown["entries"][0];
  EXPECT_EQ(entry["process_group"], json({"second", "second"}));
  EXPECT_EQ(entry["profiling_name"], "qccl:all_reduce");
  EXPECT_EQ(entry["collective_seq_id"], 1);
  EXPECT_EQ(entry["input_sizes"], json::parse("[[2, 3]]"));
  EXPECT_EQ(entry["output_dtypes"], json({"Float"}));
  EXPECT_EQ(entry["state"], "completed");
  EXPECT_GE(entry["time_discovered_completed_ns"], entry["time_created_ns"]);
  EXPECT_FALSE(entry.contains("error"));
}

TEST(OperationTrace, messages_have_a_peer_and_numbers_of_their_own) {
  OperationTrace trace(0);
  trace.add_group("group", {0, 1});
  trace.begin(0, {.name = "qccl:send", .is_message = true, .peer = 1, .sequence = 4});
  const json shown = json::parse(trace.to_json());
  EXPECT_EQ(shown["entries"][0]["p2p_seq_id"], 4);
  EXPECT_EQ(shown["entries"][0]["collective_seq_id"], 0);
  EXPECT_EQ(shown["entries"][0]["peer"], 1);
  EXPECT_EQ(shown["pg_status"]["0"]["last_enqueued_collective"], "0");
}

TEST(OperationTrace, the_number_in_errors_is_asked_for_until_the_end) {
  OperationTrace trace(0);
  trace.add_group("group", {0, 1});
  auto number = std::make_shared<std::uint64_t>(0);
  const auto handle =
      trace.begin(0, {.name = "qccl:all_reduce", .sequence = 4, .number = [number] { return *number; }});
  const auto shown = [&] { return json::parse(trace.to_json())["entries"][0]; };
  EXPECT_EQ(shown()["qccl_seq_id"], 0);
  *number = 7;
  EXPECT_EQ(shown()["qccl_seq_id"], 7);
  trace.end(handle, "");
  EXPECT_EQ(shown()["qccl_seq_id"], 7);
  EXPECT_EQ(shown()["collective_seq_id"], 4);
  EXPECT_EQ(shown()["qccl_operations"], 1);
  EXPECT_EQ(number.use_count(), 1) << "the function must be released";
}

TEST(OperationTrace, only_the_last_operations_of_a_group_are_kept) {
  OperationTrace trace(0);
  trace.add_group("group", {0});
  trace.add_group("other", {0});
  const auto oldest = trace.begin(0, all_reduce(1));
  const auto other = trace.begin(1, all_reduce(1));
  for (std::uint64_t n = 2; n <= OperationTrace::kKept + 1; ++n) trace.begin(0, all_reduce(n));
  trace.end(oldest, "");  // already dropped: end() does nothing
  trace.end(other, "");
  const json entries = json::parse(trace.to_json())["entries"];
  ASSERT_EQ(entries.size(), OperationTrace::kKept + 1);
  EXPECT_EQ(entries[0]["collective_seq_id"], 2);
  EXPECT_EQ(entries.back()["state"], "completed");
}

TEST(OperationTrace, the_first_failure_of_a_group_is_written_to_a_file) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "qccl_operation_trace";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  OperationTrace trace(3);
  trace.dump_to((folder / "trace_").string());
  trace.add_group("group", {3});
  trace.end(trace.begin(0, all_reduce(1)), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  trace.end(trace.begin(0, all_reduce(2)), "rank 1 said \"no\"\n\x01");
  std::ifstream file(folder / "trace_3.json");
  std::stringstream text;
  text << file.rdbuf();
  const json entries = json::parse(text.str())["entries"];
  EXPECT_EQ(entries[1]["state"], "failed");
  EXPECT_EQ(entries[1]["error"], "rank 1 said \"no\"\n\x01");
  std::filesystem::remove(folder / "trace_3.json");
  trace.end(trace.begin(0, all_reduce(3)), "again");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace qccl::torch_binding
