#include "extras/train/outer/standing.h"

#include <algorithm>
#include <tuple>

#include "base/fields.h"

namespace qccl::train {
namespace {

void visit_standing(auto& fields, auto& standing) {
  fields.integer(standing.settings);
  visit_position(fields, standing.position);
  fields.integer(standing.rate);
  fields.integer(standing.next_begin_in);
  fields.template integer<std::uint8_t>(standing.lacks_state);
  fields.integer(standing.group_number);
}

}  // namespace

std::string encode_standing(const OuterStanding& standing) {
  FieldWriter to;
  visit_standing(to, standing);
  return to.take();
}

Result<OuterStanding> decode_standing(std::string_view bytes) {
  FieldReader from(bytes);
  OuterStanding standing;
  visit_standing(from, standing);
  QCCL_TRY(from.check_finished("what a rank of the outer loop tells the others"));
  return standing;
}

std::vector<OuterStanding> exchange_standings(const OuterStanding& own, Communicator& group) {
  const std::string encoded = encode_standing(own);
  std::string all(encoded.size() * static_cast<std::size_t>(group.size()), '\0');
  group.all_gather(encoded.data(), all.data(), encoded.size(), DataType::uint8);
  std::vector<OuterStanding> standings;
  for (std::size_t at = 0; at < all.size(); at += encoded.size()) {
    standings.push_back(decode_standing(std::string_view(all).substr(at, encoded.size())).take_or_throw());
  }
  return standings;
}

int source_of(const std::vector<OuterStanding>& standings) {
  const auto merit = [&](const OuterStanding& each) {
    const auto party = std::ranges::count(standings, each.position.lineage.now,
                                          [](const OuterStanding& of) { return of.position.lineage.now; });
    return std::tuple(!each.lacks_state, each.position.rounds, party);
  };
  return static_cast<int>(std::ranges::max_element(standings, {}, merit) - standings.begin());
}

}  // namespace qccl::train
