// The keys of the stores in which jobs start, launch, list their doors and let newcomers wait: who writes each, in
// which format and when. The servers' rules (key_rules.h), the names that clients use (key()) and the table in
// docs/internals.md derive from this one.
//
// A name is that of its place's job (key_prefix()) and a pattern, in which each capital letter is a number:
//
//   G  generation, an attempt to start: 1 to kMaxGenerations
//   R  rank other than 0
//   N  entry in the list of doors: 1 to kMostListedDoors
//   T  ticket of a newcomer, from 1
//   C  call of that newcomer, from 1
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl::bootstrap {

// More generations than a job begins while one process of rank 0 serves it.
inline constexpr int kMaxGenerations = 16;
inline constexpr int kMostListedDoors = 4096;

// start: the store in which a job starts, names of the job and its restart. list: the same store, names of door_name().
// door: the store of an open member, names of door_name().
enum class Place : std::uint8_t { start, list, door };

// server: the process that serves the store. Nothing limits its own connection.
enum class Writer : std::uint8_t { server, rank, newcomer };

// What clients may write. count: add(key, 1). closers: the same, and "1" by a will. failure: an outcome that is one.
enum class Format : std::uint8_t { count, closers, process, record, outcome, reason, seat, choice, nothing };

// with_place: the client's card is the one that the store keeps for its rank in G.
// called: the newcomer with ticket T was called, and C is the newest call.
enum class When : std::uint8_t { any_time, with_place, without_ticket, called };

struct KeyRow {
  Place place;
  std::string_view pattern;
  Writer writer;
  Format format;
  When when;
  std::string_view meaning;
};

inline constexpr KeyRow kKeys[] = {
    {Place::start, "generation", Writer::server, Format::count, When::any_time, "the newest generation, from 1"},
    {Place::start, "G/open", Writer::server, Format::process, When::any_time, "generation G has begun"},
    {Place::start, "G/claim/R", Writer::rank, Format::count, When::any_time,
     "processes that took rank R; more than one is wrong"},
    {Place::start, "G/card/R", Writer::rank, Format::record, When::any_time, "rank R and how to reach it"},
    {Place::start, "G/closed", Writer::rank, Format::closers, When::with_place,
     "the rank that makes it 1 writes the outcome"},
    {Place::start, "G/outcome", Writer::rank, Format::outcome, When::with_place,
     "all cards, or the failure, or superseded; no rank joins G after it"},
    {Place::start, "G/failure", Writer::rank, Format::reason, When::with_place, "a failure after the outcome"},
    {Place::start, "refused", Writer::server, Format::reason, When::any_time,
     "processes that the server refused for their key"},
    {Place::list, "doors", Writer::rank, Format::count, When::any_time, "the newest entry, from 1"},
    {Place::list, "door/N", Writer::rank, Format::record, When::any_time, "an open member; its door is the card"},
    {Place::door, "tickets", Writer::newcomer, Format::count, When::without_ticket,
     "the newest ticket, from 1; its newcomer waits"},
    {Place::door, "T/C/call", Writer::server, Format::nothing, When::any_time, "answer at once"},
    {Place::door, "T/C/here", Writer::newcomer, Format::record, When::called, "the answer: how to reach the newcomer"},
    {Place::door, "T/C/seat", Writer::server, Format::seat, When::any_time,
     "the newcomer's seat, and how to reach all ranks; empty: not this time, wait for call C + 1"},
    {Place::door, "T/C/in", Writer::server, Format::choice, When::any_time,
     "1: all have met; empty: the meeting has failed, wait for call C + 1"},
};

// A pattern of the table: another one does not compile.
class Pattern {
 public:
  consteval Pattern(const char* text) : row_(find(text)) {}  // NOLINT: calls read key("G/card/R", 1, 2)
  const KeyRow& row() const { return *row_; }

 private:
  static consteval const KeyRow* find(std::string_view text) {
    for (const KeyRow& row : kKeys) {
      if (row.pattern == text) return &row;
    }
    throw "no key has this pattern";
  }
  const KeyRow* row_;
};

using KeyNumbers = std::array<std::int64_t, 2>;

// The name with the numbers in place of the pattern's letters.
std::string name_of(const KeyRow& row, KeyNumbers numbers);
std::string key(Pattern pattern, auto... numbers) {
  return name_of(pattern.row(), {static_cast<std::int64_t>(numbers)...});
}

// A name of the table.
struct ParsedKey {
  const KeyRow* row;
  KeyNumbers numbers;

  bool is(Pattern pattern) const { return row == &pattern.row(); }
};
// Empty if the table has no such name in this place. A name has one spelling, so limits of its numbers bound the names.
std::optional<ParsedKey> parse_key(Place place, std::string_view name);

// "qccl/JOB/RESTART/": what the names of a job begin with in a store that other jobs may use too.
std::string key_prefix(const std::string& job, std::uint32_t restart);

// What doors, their list and newcomers call their keys and secrets.
std::string door_name(const std::string& job);

}  // namespace qccl::bootstrap
