// SPDX-License-Identifier: Apache-2.0
#pragma once

// estimate_times once more, as slow and plain as it can be: from what plans say alone.

#include <limits>
#include <ostrakon/plan/timing/timing.hpp>

#include "plan/checks.hpp"
#include "plan/traffic.hpp"

namespace ostrakon::tests {

/// Partners of `rank` on other nodes, for a group as the mesh lays it out.
inline int naive_apart(const StepPlan& plan, const Action& action, int rank, int ranks_per_node) {
  int apart = 0;
  for (int other : ranks_of_group(plan, action.span, rank))
    if (other / ranks_per_node != rank / ranks_per_node) ++apart;
  return apart;
}

inline Timing naive_timing(const StepPlan& plan, int ranks_per_node, const Rates& rates) {
  const auto message = [](const Action& action) {
    return communicates(action.kind) && action.span.ranks > 1
               ? static_cast<double>(action.elements * action.element_bytes / action.span.ranks)
               : 0.0;
  };
  // The rank that sends the most across nodes, the first of those.
  int busiest = 0;
  double most = 0.0;
  for (int rank = 0; rank < plan.grid.ranks(); ++rank) {
    double across = 0.0;
    for (const Action& action : plan.actions)
      if (message(action) > 0.0)
        across += message(action) * naive_apart(plan, action, rank, ranks_per_node);
    if (across > most) {
      most = across;
      busiest = rank;
    }
  }

  struct Piece {
    std::string of;
    double left = 0.0;
  };
  const std::size_t count = plan.actions.size();
  std::vector<std::size_t> before(count, count);  // on the same stream; count: none
  for (std::size_t a = 0; a < count; ++a)
    for (std::size_t b = a; b-- > 0 && before[a] == count;)
      if (plan.actions[b].stream == plan.actions[a].stream) before[a] = b;
  std::vector<std::vector<Piece>> pieces(count);
  for (std::size_t a = 0; a < count; ++a) {
    const Action& action = plan.actions[a];
    const auto add = [&](const char* of, double seconds) {
      if (seconds > 0.0) pieces[a].push_back({of, seconds});
    };
    add("device", action.flops / rates.flops_per_second);
    if (message(action) > 0.0) {
      const int apart = naive_apart(plan, action, busiest, ranks_per_node);
      add("inside",
          message(action) * (action.span.ranks - 1 - apart) / rates.inside_node_bytes_per_second);
      add("across", message(action) * apart / rates.across_node_bytes_per_second);
    }
    if (action.kind == Kind::copy_to_device || action.kind == Kind::copy_to_host)
      add(name(action.kind), static_cast<double>(action.elements * action.element_bytes) /
                                 rates.copy_bytes_per_second);
    if (action.stream != Stream::host) continue;
    double bytes = 0.0;
    for (const Use& use : action.uses) {
      const bool is_moment = use.role == Role::first_moment || use.role == Role::second_moment;
      const std::int64_t size = use.role == Role::parameters ? plan.layouts.gathered.element_bytes
                                                             : plan.layouts.masters.element_bytes;
      if (is_moment)
        bytes += static_cast<double>(plan.buffers[static_cast<std::size_t>(use.buffer)].bytes);
      else if (use.role != Role::host_sums)
        bytes += static_cast<double>(action.elements * size);
    }
    add("host", bytes / rates.host_bytes_per_second);
  }

  Timing timing;
  constexpr double never = std::numeric_limits<double>::infinity();
  timing.begins.assign(count, never);
  timing.ends.assign(count, never);
  double now = 0.0;
  for (;;) {
    // Again and again over all actions, until nothing changes at this moment.
    for (bool changes = true; changes;) {
      changes = false;
      for (std::size_t a = 0; a < count; ++a) {
        if (timing.begins[a] == never) {
          bool may = before[a] == count || timing.ends[before[a]] < never;
          for (int other : plan.actions[a].waits)
            may = may && timing.ends[static_cast<std::size_t>(other)] < never;
          if (!may) continue;
          timing.begins[a] = now;
          changes = true;
        }
        if (timing.ends[a] == never && pieces[a].empty()) {
          timing.ends[a] = now;
          changes = true;
        }
      }
    }
    std::vector<Piece*> running;
    for (std::size_t a = 0; a < count; ++a)
      if (timing.begins[a] < never && timing.ends[a] == never)
        running.push_back(&pieces[a].front());
    if (running.empty()) break;
    const auto users = [&](const std::string& of) {
      return std::count_if(running.begin(), running.end(),
                           [&](const Piece* piece) { return piece->of == of; });
    };
    double next = never;
    for (const Piece* piece : running)
      next = std::min(next, piece->left * static_cast<double>(users(piece->of)));
    (users("device") > 0                          ? timing.computing
     : users("inside") > 0 || users("across") > 0 ? timing.exposed_communication
     : users("host") > 0                          ? timing.exposed_host
                                                  : timing.exposed_copies) += next;
    std::vector<double> gone;
    for (const Piece* piece : running) gone.push_back(next / static_cast<double>(users(piece->of)));
    now += next;
    // What is left by rounding alone is done.
    for (std::size_t i = 0; i < running.size(); ++i) running[i]->left -= gone[i];
    for (std::size_t a = 0; a < count; ++a)
      if (timing.begins[a] < never && !pieces[a].empty() && pieces[a].front().left <= 1e-12 * now)
        pieces[a].erase(pieces[a].begin());
  }
  timing.seconds = now;
  return timing;
}

}  // namespace ostrakon::tests
