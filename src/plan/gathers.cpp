// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/plan/gathers.hpp>
#include <stdexcept>

namespace ostrakon::plan {

GatherSchedule::GatherSchedule(std::vector<Visit> visits, std::vector<GatherRules> rules,
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
            " are gathered together, since ", names[visit.unit], " borrows parameters; expected ",
            alone.units, " or more");
    require(limit_.bytes == 0 || alone.bytes <= limit_.bytes,
            "parallel.in_flight_gathers = ", format_bytes(limit_.bytes), ": ", who, " alone ",
            who == names[visit.unit] ? "has " : "have ", format_bytes(alone.bytes),
            " when gathered; expected as much or more");
  }
}

void GatherSchedule::add(InFlight& load, int unit, int sign) const {
  load.units += sign;
  load.bytes += sign * rules_[unit].bytes;
}

bool GatherSchedule::fits(const InFlight& load, int unit) const {
  return (limit_.units == 0 || load.units + 1 <= limit_.units) &&
         (limit_.bytes == 0 || load.bytes + rules_[unit].bytes <= limit_.bytes);
}

int GatherSchedule::next_use(int unit, int after) const {
  for (std::size_t v = static_cast<std::size_t>(after) + 1; v < visits_.size(); ++v)
    for (int need : visits_[v].needs)
      if (need == unit) return static_cast<int>(v);
  return -1;
}

/// Whether visits between `index` and `use` find room for what they need if `unit`, and those
/// `found` to be gathered now, are gathered by then.
bool GatherSchedule::leaves_room(int unit, int index, int use,
                                 const std::vector<int>& found) const {
  if (limit_.units == 0 && limit_.bytes == 0) return true;
  const auto is_needed = [&](int u, int v) {
    return u == visits_[v].needs[0] || u == visits_[v].needs[1];
  };
  // What is there for later: not what the visit itself needs, which ends with it.
  std::vector<int> held = {unit};
  for (const std::vector<int>* there : {&flying_, &found})
    for (int u : *there)
      if (!is_needed(u, index)) held.push_back(u);
  for (int v = index + 1; v <= use; ++v) {
    InFlight load;
    std::vector<int> counted;
    const auto count = [&](int u) {
      if (std::find(counted.begin(), counted.end(), u) != counted.end()) return;
      counted.push_back(u);
      add(load, u, 1);
    };
    for (int u : held)
      if (next_use(u, index) >= v) count(u);
    for (int u : visits_[v].needs)
      if (u >= 0 && state_[u] != State::kept) count(u);
    if (limit_.units > 0 && load.units > limit_.units) return false;
    if (limit_.bytes > 0 && load.bytes > limit_.bytes) return false;
  }
  return true;
}

std::vector<int> GatherSchedule::wanted(int index) const {
  std::vector<int> found;
  InFlight load = in_flight_;
  const auto is_there = [&](int unit) {
    return state_[unit] != State::away ||
           std::find(found.begin(), found.end(), unit) != found.end();
  };
  const auto take = [&](int unit) {
    found.push_back(unit);
    add(load, unit, 1);
  };
  const Visit& visit = visits_[index];
  for (int unit : visit.needs)
    if (unit >= 0 && !is_there(unit)) take(unit);
  if (visit.unit < 0) return found;

  const GatherRules& rules = rules_[visit.unit];
  const Prefetch& prefetch = visit.forward ? rules.forward_prefetch : rules.backward_prefetch;
  if (!prefetch.units.empty()) {
    for (int unit : visit.forward ? rules.forward_list : rules.backward_list) {
      const int use = next_use(unit, index);
      if (use < 0 || is_there(unit) || !fits(load, unit)) continue;
      if (leaves_room(unit, index, use, found)) take(unit);
    }
    return found;
  }
  int depth = 0;
  for (std::size_t v = static_cast<std::size_t>(index) + 1;
       v < visits_.size() && depth < prefetch.depth; ++v) {
    if (visits_[v].needs[0] < 0 && visits_[v].needs[1] < 0) continue;
    ++depth;
    for (int unit : visits_[v].needs) {
      if (unit < 0 || is_there(unit)) continue;
      // In the order of use: nothing later may take the room of what comes before it.
      if (!fits(load, unit)) return found;
      take(unit);
    }
  }
  return found;
}

void GatherSchedule::fly(int unit) {
  state_[unit] = State::in_flight;
  add(in_flight_, unit, 1);
  flying_.push_back(unit);
}

std::vector<int> GatherSchedule::begin(int index) {
  std::vector<int> found = wanted(index);
  for (int unit : found) fly(unit);
  if ((limit_.units > 0 && in_flight_.units > limit_.units) ||
      (limit_.bytes > 0 && in_flight_.bytes > limit_.bytes))
    throw std::logic_error("more is gathered than parallel.in_flight_gathers allows");
  return found;
}

GatherSchedule::End GatherSchedule::end(int index, int unit) {
  const int next = next_[index][visits_[index].needs[0] == unit ? 0 : 1];
  const bool soon = next >= 0 && visits_[next].micro_batch == visits_[index].micro_batch;
  const Reshard& reshard = rules_[unit].reshard;
  if (state_[unit] == State::in_flight) {
    add(in_flight_, unit, -1);
    flying_.erase(std::find(flying_.begin(), flying_.end(), unit));
  }
  state_[unit] = State::away;
  if (soon && reshard.kind == Reshard::never) {
    state_[unit] = State::kept;
    return End::stay;
  }
  if (soon && reshard.kind == Reshard::partly) return End::keep_part;
  if (reshard.kind != Reshard::automatic || next < 0) return End::release;
  // Released, it would be gathered again before anything is computed: it stays.
  const std::vector<int> then = wanted(index + 1);
  if (std::find(then.begin(), then.end(), unit) == then.end()) return End::release;
  fly(unit);
  return End::stay;
}

}  // namespace ostrakon::plan
