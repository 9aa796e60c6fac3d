// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/gathers.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <stdexcept>

namespace ostrakon::plan {

GatherOrder::GatherOrder(std::vector<Visit> visits, std::vector<GatherRules> rules,
                         GatherLimit limit, const std::vector<std::string>& names)
    : visits_(std::move(visits)),
      rules_(std::move(rules)),
      limit_(limit),
      next_(visits_.size(), {-1, -1}),
      state_(rules_.size(), State::away) {
  std::vector<int> next(rules_.size(), -1);
  for (std::size_t v = visits_.size(); v-- > 0;) {
    const Visit& visit = visits_[v];
    InFlight alone;
    std::string who;
    for (int k = 0; k < 2; ++k) {
      const int unit = visit.needs[k];
      if (unit < 0) continue;
      next_[v][k] = next[unit];
      add(alone, unit, 1);
      who += (who.empty() ? "" : " and ") + names[unit];
    }
    for (int unit : visit.needs)
      if (unit >= 0) next[unit] = static_cast<int>(v);
    require(limit_.units == 0 || alone.units <= limit_.units,
            "parallel.in_flight_gathers = ", limit_.units, ": ", who,
            " are gathered together, since ", names[visit.unit], " is tied to the other; expected ",
            alone.units, " or more");
    require(limit_.bytes == 0 || alone.bytes <= limit_.bytes,
            "parallel.in_flight_gathers = ", format_bytes(limit_.bytes), ": ", who, " alone ",
            who == names[visit.unit] ? "has " : "have ", format_bytes(alone.bytes),
            " when gathered; expected as much or more");
  }
  find_open(next);
}

/// Finds which micro-batches are between forward and backward of a unit: in a pipeline there may be
/// several. `first` are the first visits that need each unit.
void GatherOrder::find_open(const std::vector<int>& first) {
  int most = -1;
  for (const Visit& visit : visits_) most = std::max(most, visit.micro_batch);
  is_open_.assign(visits_.size(), {false, false});
  std::vector<int> left(static_cast<std::size_t>(most) + 2);  // visits left per micro-batch; -1
                                                              // counts as one, too
  std::vector<bool> begun;
  for (int unit = 0; unit < static_cast<int>(rules_.size()); ++unit) {
    const auto need = [&](int v) { return visits_[v].needs[0] == unit ? 0 : 1; };
    for (int v = first[unit]; v >= 0; v = next_[v][need(v)]) ++left[visits_[v].micro_batch + 1];
    begun.assign(left.size(), false);
    int open = 0;
    for (int v = first[unit]; v >= 0; v = next_[v][need(v)]) {
      const int of = visits_[v].micro_batch + 1;
      if (!begun[of]) ++open;
      begun[of] = true;
      if (--left[of] == 0) --open;
      is_open_[v][need(v)] = open > 0;
    }
  }
}

/// Returns the next visit that needs what visit `index` needs of `unit`; -1: none.
int GatherOrder::next_at(int index, int unit) const {
  return next_[index][visits_[index].needs[0] == unit ? 0 : 1];
}

bool GatherOrder::is_open(int index, int unit) const {
  return is_open_[index][visits_[index].needs[0] == unit ? 0 : 1];
}

void GatherOrder::add(InFlight& load, int unit, int sign) const {
  load.units += sign;
  load.bytes += sign * rules_[unit].bytes;
}

int GatherOrder::next_use(int unit, int after) const {
  for (std::size_t v = static_cast<std::size_t>(after) + 1; v < visits_.size(); ++v)
    for (int need : visits_[v].needs)
      if (need == unit) return static_cast<int>(v);
  return -1;
}

/// Returns the state of `unit` after a visit that needs it, if it is not gathered again at once.
GatherOrder::State GatherOrder::state_after(int index, int unit) const {
  const Reshard::Kind reshard = rules_[unit].reshard.kind;
  const bool stays = reshard == Reshard::end_of_step
                         ? next_at(index, unit) >= 0
                         : reshard == Reshard::never && is_open(index, unit);
  return stays ? State::kept : State::away;
}

/// Whether all visits from `index` to `use` stay within the limit if `unit`, besides those `found`,
/// is gathered now, and everything else when it is needed.
bool GatherOrder::leaves_room(int unit, int index, int use, const std::vector<int>& found) const {
  if (limit_.units == 0 && limit_.bytes == 0) return true;
  std::map<int, State> changed;
  const auto state = [&](int u) {
    const auto at = changed.find(u);
    return at == changed.end() ? state_[u] : at->second;
  };
  InFlight load = in_flight_;
  const auto change = [&](int u, State to) {
    if (state(u) == State::in_flight) add(load, u, -1);
    if (to == State::in_flight) add(load, u, 1);
    changed[u] = to;
  };
  for (int u : found) change(u, State::in_flight);
  change(unit, State::in_flight);
  for (int v = index; v <= use; ++v) {
    for (int u : visits_[v].needs)
      if (u >= 0 && state(u) == State::away) change(u, State::in_flight);
    if (limit_.units > 0 && load.units > limit_.units) return false;
    if (limit_.bytes > 0 && load.bytes > limit_.bytes) return false;
    for (int u : visits_[v].needs)
      if (u >= 0) change(u, state_after(v, u));
  }
  return true;
}

std::vector<int> GatherOrder::wanted(int index) const {
  std::vector<int> found;
  const auto is_there = [&](int unit) {
    return state_[unit] != State::away ||
           std::find(found.begin(), found.end(), unit) != found.end();
  };
  const Visit& visit = visits_[index];
  for (int unit : visit.needs)
    if (unit >= 0 && !is_there(unit)) found.push_back(unit);
  if (visit.unit < 0) return found;

  const GatherRules& rules = rules_[visit.unit];
  const Prefetch& prefetch = visit.forward ? rules.forward_prefetch : rules.backward_prefetch;
  if (!prefetch.units.empty()) {
    for (int unit : visit.forward ? rules.forward_list : rules.backward_list) {
      const int use = next_use(unit, index);
      if (use >= 0 && !is_there(unit) && leaves_room(unit, index, use, found))
        found.push_back(unit);
    }
    return found;
  }
  int depth = 0;
  for (int v = index + 1; v < static_cast<int>(visits_.size()) && depth < prefetch.depth; ++v) {
    if (visits_[v].needs[0] < 0 && visits_[v].needs[1] < 0) continue;
    ++depth;
    for (int unit : visits_[v].needs) {
      // A unit that is there can't be gathered now, even if it is released before that visit.
      if (unit < 0 || is_there(unit)) continue;
      // Units are taken in the order of use: nothing later takes the space of an earlier one.
      if (!leaves_room(unit, index, v, found)) return found;
      found.push_back(unit);
    }
  }
  return found;
}

void GatherOrder::fly(int unit) {
  state_[unit] = State::in_flight;
  add(in_flight_, unit, 1);
}

std::vector<int> GatherOrder::begin(int index) {
  std::vector<int> found = wanted(index);
  for (int unit : found) fly(unit);
  if ((limit_.units > 0 && in_flight_.units > limit_.units) ||
      (limit_.bytes > 0 && in_flight_.bytes > limit_.bytes))
    throw std::logic_error("more is gathered than parallel.in_flight_gathers allows");
  return found;
}

GatherOrder::End GatherOrder::end(int index, int unit) {
  if (state_[unit] == State::in_flight) add(in_flight_, unit, -1);
  state_[unit] = state_after(index, unit);
  if (state_[unit] == State::kept) return End::stay;
  const int next = next_at(index, unit);
  const Reshard::Kind reshard = rules_[unit].reshard.kind;
  if (is_open(index, unit) && reshard == Reshard::partly) return End::keep_part;
  if (reshard != Reshard::automatic || next < 0) return End::release;
  // A unit that was kept until this visit is released after it, also if its own end comes next: if
  // it is needed again, it takes space.
  for (int other : visits_[index].needs)
    if (other >= 0 && state_[other] == State::kept) state_[other] = state_after(index, other);
  // If it were released, it would be gathered again before anything is computed: it stays.
  const std::vector<int> then = wanted(index + 1);
  if (std::find(then.begin(), then.end(), unit) == then.end()) return End::release;
  fly(unit);
  return End::stay;
}

}  // namespace ostrakon::plan
