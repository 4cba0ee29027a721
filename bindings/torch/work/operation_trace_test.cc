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
  const auto record = trace.begin(group, all_reduce(1));
  EXPECT_EQ(json::parse(trace.to_json())["entries"][0]["state"], "started");
  trace.end(group, record, "");
  const json shown = json::parse(trace.to_json());
  EXPECT_EQ(shown["rank"], 7);
  EXPECT_EQ(shown["pg_config"]["first"]["ranks"], "[7, 8]");
  EXPECT_EQ(shown["pg_status"]["1"]["last_completed_collective"], "1");
  const json entry = shown["entries"][0];
  EXPECT_EQ(entry["process_group"], json({"second", "second"}));
  EXPECT_EQ(entry["profiling_name"], "gloo:all_reduce");
  EXPECT_EQ(entry["collective_seq_id"], 1);
  EXPECT_EQ(entry["input_sizes"], json::parse("[[2, 3]]"));
  EXPECT_EQ(entry["output_dtypes"], json({"Float"}));
  EXPECT_EQ(entry["state"], "completed");
  EXPECT_GE(entry["time_discovered_completed_ns"], entry["time_created_ns"]);
  EXPECT_FALSE(entry.contains("error"));
}

TEST(OperationTrace, messages_are_shown_in_a_group_of_their_two_ranks) {
  OperationTrace trace(8);
  trace.add_group("group", {5, 8, 7});
  const auto shown_of = [&](OperationTrace::Operation message) {
    trace.begin(0, std::move(message));
    return json::parse(trace.to_json())["entries"].back();
  };
  const json sent = shown_of({.name = "qccl:send", .is_message = true, .peer = 2});
  EXPECT_EQ(sent["profiling_name"], "gloo:send 1->0");
  EXPECT_EQ(sent["process_group"][0], "group:8->7");
  EXPECT_EQ(sent["collective_seq_id"], 1);
  EXPECT_EQ(sent["p2p_seq_id"], 1);
  EXPECT_EQ(sent["peer"], 2);
  const json received = shown_of({.name = "qccl:recv", .is_message = true, .peer = 2});
  EXPECT_EQ(received["profiling_name"], "gloo:recv 1<-0");
  EXPECT_EQ(received["process_group"][0], "group:7->8");
  const json second = shown_of({.name = "qccl:send", .is_message = true, .peer = 2});
  EXPECT_EQ(second["collective_seq_id"], 2);
  const json any = shown_of({.name = "qccl:recvAnySource", .is_message = true});
  EXPECT_EQ(any["profiling_name"], "gloo:recv 0<-0");
  EXPECT_EQ(any["process_group"][0], "group:8");
  trace.end(0, 3, "", 0);
  const json trace_of_all = json::parse(trace.to_json());
  EXPECT_EQ(trace_of_all["entries"][3]["process_group"][0], "group:5->8") << "where it came from";
  EXPECT_EQ(trace_of_all["pg_config"]["group:5->8"]["ranks"], "[5, 8]");
  EXPECT_EQ(trace_of_all["pg_config"]["group:8->7"]["ranks"], "[7, 8]");
  EXPECT_FALSE(trace_of_all["pg_config"].contains("group:8"));
  EXPECT_EQ(trace_of_all["pg_status"]["0"]["last_enqueued_collective"], "0");
}

TEST(OperationTrace, groups_with_one_name_are_told_apart) {
  OperationTrace trace(0);
  trace.add_group("0", {0, 1, 2});
  trace.begin(trace.add_group("0", {0, 2}), all_reduce(1));
  const json shown = json::parse(trace.to_json());
  EXPECT_EQ(shown["pg_config"]["0"]["ranks"], "[0, 1, 2]");
  EXPECT_EQ(shown["pg_config"]["0#2"]["ranks"], "[0, 2]");
  EXPECT_EQ(shown["entries"][0]["process_group"][0], "0#2");
}

TEST(OperationTrace, the_number_in_errors_is_asked_for_until_the_end) {
  OperationTrace trace(0);
  trace.add_group("group", {0, 1});
  auto number = std::make_shared<std::uint64_t>(0);
  const auto record =
      trace.begin(0, {.name = "qccl:all_reduce", .sequence = 4, .number = [number] { return *number; }});
  const auto shown = [&] { return json::parse(trace.to_json())["entries"][0]; };
  EXPECT_EQ(shown()["qccl_seq_id"], 0);
  *number = 7;
  EXPECT_EQ(shown()["qccl_seq_id"], 7);
  trace.end(0, record, "");
  EXPECT_EQ(shown()["qccl_seq_id"], 7);
  EXPECT_EQ(shown()["collective_seq_id"], 4);
  EXPECT_EQ(shown()["qccl_operations"], 1);
  EXPECT_EQ(number.use_count(), 1) << "the function must be released";
}

TEST(OperationTrace, only_the_last_operations_are_kept) {
  OperationTrace trace(0);
  trace.add_group("group", {0});
  trace.add_group("other", {0});
  const auto oldest = trace.begin(0, all_reduce(1));
  const auto other = trace.begin(1, all_reduce(1));
  for (std::uint64_t n = 2; n <= OperationTrace::kKept; ++n) trace.begin(0, all_reduce(n));
  trace.end(0, oldest, "");  // already dropped
  trace.end(1, other, "");
  const json entries = json::parse(trace.to_json())["entries"];
  ASSERT_EQ(entries.size(), OperationTrace::kKept);
  EXPECT_EQ(entries[0]["record_id"], 1);
  EXPECT_EQ(entries[0]["state"], "completed");
  EXPECT_EQ(entries.back()["record_id"], OperationTrace::kKept);
}

class Dumps : public ::testing::Test {
 protected:
  Dumps() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    trace_.dump_to((folder_ / "trace_").string());
    trace_.add_group("group", {3, 4});
  }
  ~Dumps() override { std::filesystem::remove_all(folder_); }

  // The dump, which is removed; "" if there is none.
  std::string take_dump() {
    const auto path = folder_ / "trace_3";
    std::stringstream text;
    if (std::ifstream file(path, std::ios::binary); file) text << file.rdbuf();
    std::filesystem::remove(path);
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    return text.str();
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  const std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "qccl_operation_trace";
  OperationTrace trace_{3};
};

TEST_F(Dumps, the_first_failure_of_a_group_is_written) {
  trace_.end(0, trace_.begin(0, all_reduce(1)), "");
  EXPECT_EQ(take_dump(), "");
  trace_.end(0, trace_.begin(0, all_reduce(2)), "rank 1 said \"no\"\n\x01");
  EXPECT_TRUE(has(take_dump(), "rank 1 said \"no\"\n\x01"));
}

TEST_F(Dumps, a_group_that_fails_without_an_operation_is_written_once) {
  trace_.end(0, trace_.begin(0, all_reduce(1)), "");
  trace_.fail(0);
  EXPECT_TRUE(has(take_dump(), "completed"));
  trace_.fail(0);
  EXPECT_EQ(take_dump(), "");
}

TEST_F(Dumps, the_end_of_the_last_operation_in_flight_is_written_too) {
  const auto first = trace_.begin(0, all_reduce(1));
  const auto second = trace_.begin(0, all_reduce(2));
  const auto third = trace_.begin(0, all_reduce(3));
  trace_.fail(0);
  EXPECT_FALSE(has(take_dump(), "failed"));
  trace_.end(0, first, "lost");
  trace_.end(0, second, "lost");
  EXPECT_EQ(take_dump(), "");
  trace_.end(0, third, "third of all");
  EXPECT_TRUE(has(take_dump(), "third of all"));
}

}  // namespace
}  // namespace qccl::torch_binding
