// The agreement on those that go on, with members that die, stop or are cut off at every frame of it. Everywhere: each
// live caller has a verdict by its deadline, and no two live members are in different worlds.
#include "engine/shrink/agreement.h"

#include <gtest/gtest.h>

#include "base/options.h"
#include "engine/shrink/mesh_test.h"

namespace qccl::engine::testing {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

MemberSet set_of(int members, const std::vector<int>& in) {
  MemberSet set(static_cast<std::size_t>(members), 0);
  for (const int member : in) set[static_cast<std::size_t>(member)] = 1;
  return set;
}

void expect_world(const Mesh& mesh, const std::vector<int>& members) {
  for (const int member : members) {
    ASSERT_TRUE(mesh.node(member).verdict) << "rank " << member;
    ASSERT_TRUE(mesh.node(member).verdict->ok())
        << "rank " << member << ": " << mesh.node(member).verdict->error().message;
    EXPECT_EQ(mesh.node(member).world(), set_of(mesh.size(), members)) << "rank " << member;
  }
  EXPECT_EQ(problem_of(mesh), "");
}

void expect_error(const Mesh& mesh, int member, ErrorKind kind, const std::string& text) {
  ASSERT_TRUE(mesh.node(member).verdict) << "rank " << member;
  ASSERT_FALSE(mesh.node(member).verdict->ok()) << "rank " << member;
  EXPECT_EQ(mesh.node(member).verdict->error().kind, kind) << mesh.node(member).verdict->error().message;
  EXPECT_TRUE(contains(mesh.node(member).verdict->error().message, text)) << mesh.node(member).verdict->error().message;
}

TEST(Agreement, two_survivors_of_three_go_on) {
  Mesh mesh(3, 1);
  mesh.kill(1);
  call_all(mesh);
  mesh.run();
  expect_world(mesh, {0, 2});
}

TEST(Agreement, needs_no_majority_to_leave_out_those_that_are_gone) {
  Mesh mesh(5, 1);
  for (const int dead : {0, 1, 2, 3}) mesh.kill(dead);
  call_all(mesh);
  mesh.run();
  expect_world(mesh, {4});
}

TEST(Agreement, with_nobody_lost_goes_on_with_all) {
  Mesh mesh(4, 1);
  call_all(mesh);
  mesh.run();
  expect_world(mesh, {0, 1, 2, 3});
}

TEST(Agreement, leaves_out_those_that_all_callers_name) {
  Mesh mesh(4, 1);
  call_all(mesh, terms_of(mesh, {0, 3}));
  mesh.run();
  expect_world(mesh, {1, 2});
}

TEST(Agreement, members_left_out_on_purpose_count_unless_they_live_or_have_ended) {
  Mesh few(5, 1);
  for (const int member : {0, 1, 2}) few.stop(member);
  call_all(few, terms_of(few, {0, 1, 2}));
  few.run();
  for (const int member : {3, 4}) expect_error(few, member, ErrorKind::aborted, "too few to go on: 2 of 5");

  Mesh many(3, 1);
  many.stop(2);
  call_all(many, terms_of(many, {2}));
  many.run();
  expect_world(many, {0, 1});

  Mesh ended(3, 1);
  for (const int member : {0, 1}) ended.kill(member);
  call_all(ended, terms_of(ended, {0, 1}));
  ended.run();
  expect_world(ended, {2});
}

TEST(Agreement, two_parts_that_leave_each_other_out_do_not_both_go_on) {
  for (const bool is_cut : {false, true}) {
    Mesh mesh(4, 1);
    for (const int low : {0, 1}) {
      for (const int high : {2, 3}) {
        if (!is_cut) continue;
        mesh.cut(low, high);
        mesh.cut(high, low);
      }
    }
    for (int member = 0; member < 4; ++member) {
      mesh.call(member, terms_of(mesh, member < 2 ? std::vector{2, 3} : std::vector{0, 1}));
    }
    mesh.run();
    EXPECT_EQ(problem_of(mesh), "");
    if (is_cut) expect_world(mesh, {0, 1});
  }
}

TEST(Agreement, a_rank_left_out_on_purpose_that_does_not_answer_is_named_at_the_deadline) {
  Agreement agreement({10, 11, 12}, GroupRank(0), std::chrono::milliseconds(10));
  agreement.enter({MemberSet{0, 1, 1}}, Losses(3), TimePoint(std::chrono::seconds(1)), TimePoint());
  agreement.receive(GroupRank(1), {.kind = wire::MemberListKind::promise, .ballot = {1, 0}, .members = MemberSet(3)},
                    TimePoint());
  agreement.advance(TimePoint(std::chrono::seconds(1)));
  const auto verdict = agreement.take_verdict();
  ASSERT_TRUE(verdict && !verdict->ok());
  EXPECT_TRUE(contains(verdict->error().message, "the deadline passed: rank 12 did not answer"))
      << verdict->error().message;
}

TEST(Agreement, a_rank_that_is_left_out_on_purpose_and_calls_is_told) {
  Mesh mesh(3, 1);
  mesh.call(2, terms_of(mesh));
  mesh.run(std::chrono::milliseconds(10));
  call_all(mesh, terms_of(mesh, {2}));
  mesh.run();
  expect_world(mesh, {0, 1});
  expect_error(mesh, 2, ErrorKind::aborted, "ranks 0, 1 went on without this rank");
}

TEST(Agreement, callers_that_ask_for_different_things_all_fail_and_may_call_again) {
  Mesh mesh(3, 1);
  mesh.call(0, terms_of(mesh, {2}));
  mesh.call(1, terms_of(mesh, {2}, true));
  mesh.run(std::chrono::seconds(1));
  for (const int member : {0, 1}) {
    expect_error(mesh, member, ErrorKind::misuse, "rank 0 leaves out rank 2, quorum majority");
    expect_error(mesh, member, ErrorKind::misuse, "rank 1 leaves out rank 2, quorum any");
  }
  mesh.call(1, terms_of(mesh, {2}));
  mesh.run(std::chrono::seconds(1));
  mesh.call(0, terms_of(mesh, {2}));
  mesh.run();
  expect_world(mesh, {0, 1});
}

TEST(Agreement, a_majority_goes_on_without_a_silent_rank) {
  Mesh mesh(3, 1);
  mesh.stop(0);
  call_all(mesh);
  mesh.run();
  expect_world(mesh, {1, 2});
}

TEST(Agreement, a_silent_rank_that_wakes_up_is_told_who_went_on) {
  Mesh mesh(3, 1);
  mesh.stop(0);
  call_all(mesh);
  mesh.at(std::chrono::seconds(5), [&] {
    mesh.resume(0);
    mesh.call(0, terms_of(mesh));
  });
  mesh.run();
  expect_world(mesh, {1, 2});
  expect_error(mesh, 0, ErrorKind::aborted, "ranks 1, 2 went on without this rank");
}

TEST(Agreement, too_few_do_not_go_on_without_silent_ranks) {
  Mesh mesh(5, 1);
  for (const int stopped : {0, 1, 3}) mesh.stop(stopped);
  call_all(mesh);
  mesh.run();
  for (const int member : {2, 4}) {
    expect_error(mesh, member, ErrorKind::aborted, "too few to go on: 2 of 5, the others may still be running");
  }
  Mesh reckless(5, 1);
  for (const int stopped : {0, 1, 3}) reckless.stop(stopped);
  call_all(reckless, terms_of(reckless, {}, true));
  reckless.run();
  expect_world(reckless, {2, 4});
}

TEST(Agreement, the_half_with_the_lowest_rank_goes_on_and_the_other_half_does_not) {
  Mesh mesh(4, 1);
  for (const int a : {0, 3}) {
    for (const int b : {1, 2}) {
      mesh.cut(a, b);
      mesh.cut(b, a);
    }
  }
  call_all(mesh);
  mesh.run();
  expect_world(mesh, {0, 3});
  for (const int member : {1, 2}) expect_error(mesh, member, ErrorKind::aborted, "2 of 4");
}

TEST(Agreement, a_rank_that_lives_and_does_not_call_is_named_at_the_deadline) {
  Mesh mesh(3, 1);
  mesh.call(0, terms_of(mesh));
  mesh.call(1, terms_of(mesh));
  mesh.run();
  for (const int member : {0, 1}) expect_error(mesh, member, ErrorKind::deadline_exceeded, "rank 2 live and have not");
  call_all(mesh);
  mesh.run();
  expect_world(mesh, {0, 1, 2});
}

// Both ends of the connection live and are in the call, but cannot be in one group.
TEST(Agreement, two_ranks_that_lost_each_other_do_not_both_go_on) {
  for (int a = 0; a < 3; ++a) {
    for (int b = a + 1; b < 3; ++b) {
      for (const LossGrade grade : {LossGrade::silent, LossGrade::gone}) {
        Mesh mesh(3, 1);
        mesh.reset(a, b, grade);
        call_all(mesh);
        mesh.run();
        EXPECT_EQ(problem_of(mesh), "");
        EXPECT_EQ(mesh.node(a).world().empty() + mesh.node(b).world().empty(), 1) << a << " " << b;
        EXPECT_FALSE(mesh.node(3 - a - b).world().empty()) << a << " " << b;
      }
    }
  }
}

TEST(Agreement, a_member_that_has_closed_the_group_has_left) {
  Agreement agreement({0, 1}, GroupRank(0), std::chrono::milliseconds(10));
  agreement.enter({MemberSet(2, 0)}, Losses(2), TimePoint(std::chrono::seconds(1)), TimePoint());
  agreement.receive(GroupRank(1), {.presence = wire::Presence::closed}, TimePoint());
  const auto verdict = agreement.take_verdict();
  ASSERT_TRUE(verdict && verdict->ok());
  EXPECT_EQ(verdict->value(), set_of(2, {0}));
}

// ---- faults at every frame

// The live members that call go on together, if none may still be running among those left out.
void expect_all_survivors(const Mesh& mesh, const std::string& what) {
  EXPECT_EQ(problem_of(mesh), "") << what;
  for (int member = 0; member < mesh.size(); ++member) {
    if (mesh.node(member).is_dead) continue;
    const MemberSet world = mesh.node(member).world();
    ASSERT_FALSE(world.empty()) << what << ": rank " << member << ": " << mesh.node(member).verdict->error().message;
    for (int other = 0; other < mesh.size(); ++other) {
      if (!mesh.node(other).is_dead) EXPECT_EQ(world[static_cast<std::size_t>(other)], 1) << what;
    }
  }
}

TEST(Agreement, survives_the_death_of_any_member_at_every_frame) {
  for (int members = 2; members <= 5; ++members) {
    for (int dead = 0; dead < (1 << members) - 1; ++dead) {
      for (int victim = 0; victim < members; ++victim) {
        int frames = 1;
        for (int frame = 0; frame < frames; ++frame) {
          Mesh mesh(members, static_cast<std::uint64_t>(frame));
          for (int each = 0; each < members; ++each) {
            if ((dead >> each & 1) != 0) mesh.kill(each);
          }
          mesh.before_frame(frame, [&] { mesh.kill(victim); });
          call_all(mesh);
          mesh.run();
          expect_all_survivors(
              mesh, fmt::format("{} members, dead {:#x}, rank {} dies before frame {}", members, dead, victim, frame));
          if (HasFatalFailure()) return;
          frames = mesh.frames();
        }
      }
    }
  }
}

// A commit that is lost reaches the other when it says again that it waits.
TEST(Agreement, survives_the_loss_of_any_two_frames) {
  for (const int members : {2, 3, 4}) {
    int frames = 1;
    for (int first = 0; first < frames; ++first) {
      for (int second = first; second < frames; ++second) {
        Mesh mesh(members, 1);
        mesh.drop_frame(first);
        mesh.drop_frame(second);
        call_all(mesh);
        mesh.run();
        frames = std::max(frames, mesh.frames());
        for (int rank = 0; rank < members; ++rank) {
          ASSERT_TRUE(mesh.node(rank).verdict && mesh.node(rank).verdict->ok())
              << members << " members, rank " << rank << ", lost frames " << first << " and " << second;
        }
        EXPECT_EQ(problem_of(mesh), "");
      }
    }
  }
}

TEST(Agreement, survives_two_deaths_at_any_two_frames) {
  for (int first = 0; first < 40; ++first) {
    for (int second = first; second < first + 30; ++second) {
      for (int victims = 0; victims < 9; ++victims) {
        Mesh mesh(4, static_cast<std::uint64_t>(victims));
        mesh.kill(3);
        mesh.before_frame(first, [&] { mesh.kill(victims / 3); });
        mesh.before_frame(second, [&] { mesh.kill(victims % 3); });
        call_all(mesh);
        mesh.run();
        expect_all_survivors(mesh, fmt::format("rank {} dies before frame {}, rank {} before {}", victims / 3, first,
                                               victims % 3, second));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Agreement, survives_the_stop_of_any_member_at_every_frame_with_and_without_its_return) {
  for (int members = 2; members <= 5; ++members) {
    for (int victim = 0; victim < members; ++victim) {
      for (const int back : {0, 500, 3000}) {
        int frames = 1;
        for (int frame = 0; frame < frames; ++frame) {
          Mesh mesh(members, static_cast<std::uint64_t>(frame));
          mesh.before_frame(frame, [&] { mesh.stop(victim); });
          if (back > 0) mesh.at(std::chrono::milliseconds(back), [&] { mesh.resume(victim); });
          call_all(mesh);
          mesh.run();
          ASSERT_EQ(problem_of(mesh), "") << members << " members, rank " << victim << " stops before frame " << frame;
          frames = mesh.frames();
        }
      }
    }
  }
}

// ---- random programs

struct Program {
  explicit Program(std::uint64_t program_seed)
      : seed(program_seed), random(program_seed), mesh(static_cast<int>(2 + random() % 6), program_seed) {}

  int member() { return static_cast<int>(random() % static_cast<std::uint64_t>(mesh.size())); }

  std::function<void()> fault() {
    const int victim = member();
    const int other = member();
    switch (random() % 6) {
      case 0:
      case 1: return [this, victim] { mesh.kill(victim); };
      case 2: return [this, victim] { mesh.stop(victim); };
      case 3: return [this, victim] { mesh.resume(victim); };
      case 4: return [this, victim, other] { mesh.reset(victim, other); };
      default:
        return [this, victim, other, both = random() % 2 == 0] {
          mesh.cut(victim, other);
          if (both) mesh.cut(other, victim);
        };
    }
  }

  // Mostly all call alike, and leave out nobody or one; else two parts leave each other out.
  void draw_terms() {
    const bool is_divided = random() % 8 == 0;
    const std::uint64_t part = random();
    std::vector<int> without;
    if (random() % 4 == 0) without.push_back(member());
    for (int each = 0; each < mesh.size(); ++each) {
      if (is_divided) without.clear();
      for (int other = 0; is_divided && other < mesh.size(); ++other) {
        if (((part >> each ^ part >> other) & 1) != 0) without.push_back(other);
      }
      terms.push_back(terms_of(mesh, without));
    }
  }
  bool calls(int each) const {
    return terms[static_cast<std::size_t>(each)].without[static_cast<std::size_t>(each)] == 0;
  }

  // Returns what went wrong, or "".
  std::string run() {
    const std::uint64_t before = random() % 3;
    for (std::uint64_t i = 0; i < before; ++i) fault()();
    const std::uint64_t faults = random() % 4;
    for (std::uint64_t i = 0; i < faults; ++i) {
      if (random() % 4 == 0) {
        mesh.at(std::chrono::milliseconds(random() % 5000), fault());
      } else {
        mesh.before_frame(static_cast<int>(random() % 120), fault());
      }
    }
    draw_terms();
    for (int each = 0; each < mesh.size(); ++each) {
      if (!calls(each)) continue;
      mesh.at(std::chrono::microseconds(random() % 2 == 0 ? 0 : random() % 3000),
              [=, this] { mesh.call(each, terms[static_cast<std::size_t>(each)]); });
    }
    mesh.run();
    if (std::string problem = problem_of(mesh); !problem.empty()) return problem;
    // Those that failed call again.
    for (int each = 0; each < mesh.size(); ++each) {
      mesh.resume(each);
      if (mesh.node(each).world().empty() && calls(each)) mesh.call(each, terms[static_cast<std::size_t>(each)]);
    }
    mesh.run();
    return problem_of(mesh);
  }

  const std::uint64_t seed;
  std::mt19937_64 random;
  Mesh mesh;
  std::vector<ShrinkTerms> terms;  // by member
};

std::string replay(std::uint64_t seed) {
  return fmt::format("to replay: AGREEMENT_SEED={} build/qccl_test_engine --gtest_filter=AgreementProgram.of_the_seed*",
                     seed);
}

TEST(AgreementProgram, of_random_faults_splits_no_group_and_never_hangs) {
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    ASSERT_EQ(Program(seed).run(), "") << replay(seed);
  }
}

TEST(AgreementProgram, of_the_seed_in_the_environment_splits_no_group_and_never_hangs) {
  const std::uint64_t seed = std::stoull(environment("AGREEMENT_SEED").value_or("1"));
  EXPECT_EQ(Program(seed).run(), "") << replay(seed);
}

}  // namespace
}  // namespace qccl::engine::testing
