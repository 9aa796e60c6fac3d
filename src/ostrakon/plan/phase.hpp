// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/names.hpp>
#include <ostrakon/plan/axes.hpp>
#include <ostrakon/plan/kernel_work.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// How ranks exchange activations.
enum class ExchangeKind : std::uint8_t {
  gather,          ///< each has a part, and gets all parts
  reduce_scatter,  ///< each has a whole, and gets its part of the sum of all
  all_to_all       ///< each has a part for each, and gets its part from each
};
constexpr Named<ExchangeKind> exchange_kind_names[] = {
    {ExchangeKind::gather, "gather"},
    {ExchangeKind::reduce_scatter, "reduce_scatter"},
    {ExchangeKind::all_to_all, "all_to_all"}};
constexpr const char* name(ExchangeKind kind) { return name_in(exchange_kind_names, kind); }

/// Activations that the ranks of a span exchange between two phases of a unit. In a span of one
/// rank there is nothing to do: phases that read it find what was handed over.
struct Exchange {
  ExchangeKind kind = ExchangeKind::gather;
  Span span;
  std::int64_t elements = 0;  ///< of the whole, which divides into equal parts for the ranks
  std::int64_t element_bytes = 4;
  /// Whether a step may find that no rank has anything to send. Then nothing is exchanged, and what
  /// phases that read it find is undefined.
  bool may_be_empty = false;
  /// Whether it is empty where experts get equally many tokens: estimates of time leave it out.
  bool empty_if_even = false;

  std::int64_t whole_bytes() const { return elements * element_bytes; }
  /// The bytes that a rank sends, and those that it receives.
  std::int64_t bytes_in() const {
    return kind == ExchangeKind::gather ? whole_bytes() / span.ranks : whole_bytes();
  }
  std::int64_t bytes_out() const {
    return kind == ExchangeKind::reduce_scatter ? whole_bytes() / span.ranks : whole_bytes();
  }
};

/// The most exchanges that a phase reads.
constexpr std::size_t most_reads = 2;

/// A part of a unit's forward or backward that a rank computes without communicating. Phases run
/// one after the other. An exchange runs from the phase that hands it over to the first one that
/// reads it: phases between these two overlap with it.
struct Phase {
  double flops = 0.0;            ///< floating-point operations; their number outgrows 64 bits
  double recompute_flops = 0.0;  ///< of a forward's, where it leaves only what backward reads
  std::int64_t workspace_bytes = 0;
  /// What it hands over. A later phase has to read it.
  std::optional<Exchange> then = {};
  /// The earlier phases whose exchanges it reads, `most_reads` at most.
  std::vector<int> reads = {};
  /// Whether the next phase works in this one's workspace and finds what this one left there. Else
  /// only `saved` passes on what a phase leaves.
  bool keeps_workspace = false;
  /// In a forward: whether it writes a part of the unit's output. The last one does in any case.
  bool writes_output = false;
  /// In a forward: whether it leaves anything in `saved`, for backward or for later phases. See
  /// recomputed_phases.
  bool recomputes = true;
  KernelWork work = {};            ///< for simulated times alone; 0 is fine without
  KernelWork recompute_work = {};  ///< as recompute_flops
};

/// One after the other.
using Phases = std::vector<Phase>;

/// What follows each phase, an exchange of 0 elements where none does; empty where no phase has
/// one.
inline std::vector<Exchange> exchanges(const Phases& phases) {
  std::vector<Exchange> all;
  bool any = false;
  for (const Phase& phase : phases) {
    all.push_back(phase.then.value_or(Exchange()));
    any = any || phase.then.has_value();
  }
  return any ? all : std::vector<Exchange>();
}

/// What each phase reads; empty where none reads anything.
inline std::vector<std::vector<int>> reads(const Phases& phases) {
  std::vector<std::vector<int>> all;
  bool any = false;
  for (const Phase& phase : phases) {
    all.push_back(phase.reads);
    any = any || !phase.reads.empty();
  }
  return any ? all : std::vector<std::vector<int>>();
}

/// Appends `more`, which read exchanges among themselves.
void append(Phases& phases, const Phases& more);

/// Whether each keeps its workspace; empty where none does.
std::vector<bool> keep_workspaces(const Phases& phases);

/// The first of the phases `among` that reads what phase `phase` hands over; -1: none.
int first_reader(const Phases& phases, int phase, const std::vector<int>& among);
/// All of them: 0, 1, ...
std::vector<int> all_of(const Phases& phases);

/// Whether phase `phase` of a forward writes the output, or a part of it.
inline bool writes_output(const Phases& phases, int phase) {
  return phase + 1 == static_cast<int>(phases.size()) ||
         phases[static_cast<std::size_t>(phase)].writes_output;
}

/// The workspace of a phase, which those that keep it share: bytes of the largest.
std::int64_t workspace_bytes(const Phases& phases, int phase);

/// Throws Error, naming `unit` and `what` (forward or backward), where there is no phase, a phase
/// reads what was not handed over before it, or more than `most_reads`, nothing reads what one
/// hands over, or the last one keeps its workspace.
void check_reads(const Phases& phases, const std::string& unit, const std::string& what);

/// The phases of a forward, from 0 on, that a recompute has: those that leave something for
/// backward, and those whose exchanges or workspace these read. The first if there are none.
std::vector<int> recomputed_phases(const Phases& forward);

inline double flops(const Phases& phases) {
  double sum = 0.0;
  for (const Phase& phase : phases) sum += phase.flops;
  return sum;
}
inline double recompute_flops(const Phases& phases) {
  double sum = 0.0;
  for (const Phase& phase : phases) sum += phase.recompute_flops;
  return sum;
}

}  // namespace ostrakon::plan
