// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/confirmation.hpp>

#include <algorithm>
#include <limits>

namespace ostrakon::watch {
namespace {

constexpr double between_notices = 10.0, between_repeats = 60.0;  // seconds

std::pair<Finding::Kind, int> key(const Finding& finding) { return {finding.kind, finding.lowest}; }

}  // namespace

std::vector<Finding> Confirmation::confirmed(const std::vector<Finding>& found,
                                             const std::vector<Member>& members,
                                             std::int32_t round) {
  std::int32_t heard_by_all = std::numeric_limits<std::int32_t>::max();
  for (const Member& member : members)
    if (member.link == Member::Link::open)
      heard_by_all = std::min(heard_by_all, member.record.round);
  const auto before = std::move(first_rounds_);
  first_rounds_.clear();
  std::vector<Finding> confirmed;
  for (const Finding& one : found) {
    const auto known = before.find(key(one));
    const std::int32_t first = known == before.end() ? round : known->second;
    first_rounds_.emplace(key(one), first);
    if (one.is_sure || heard_by_all > first) confirmed.push_back(one);
  }
  return confirmed;
}

std::optional<Finding> Notices::next(const std::vector<Finding>& found, double now) {
  if (now - last_ < between_notices) return std::nullopt;
  for (const Finding& one : found) {
    const auto [given, is_new] = given_.emplace(key(one), now);
    if (!is_new && now - given->second < between_repeats) continue;
    given->second = last_ = now;
    return one;
  }
  return std::nullopt;
}

}  // namespace ostrakon::watch
