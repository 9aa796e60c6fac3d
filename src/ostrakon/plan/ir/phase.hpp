// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/names.hpp>
#include <ostrakon/plan/ir/axes.hpp>
#include <ostrakon/plan/ir/kernel_work.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// The collective by which ranks exchange activations.
enum class ExchangeKind : std::uint8_t {
  gather,          ///< each rank has a part, and gets all parts
  reduce_scatter,  ///< each rank has a whole, and gets its part of the sum of all
  all_to_all       ///< each rank has a part for each rank, and gets its part from each
};
constexpr Named<ExchangeKind> exchange_kind_names[] = {
    {ExchangeKind::gather, "gather"},
    {ExchangeKind::reduce_scatter, "reduce_scatter"},
    {ExchangeKind::all_to_all, "all_to_all"}};
constexpr const char* name(ExchangeKind kind) { return name_in(exchange_kind_names, kind); }

/// Activations that the ranks of a span exchange between two phases of a unit. In a span of one
/// rank nothing is exchanged: phases that read the result read the send buffer.
struct Exchange {
  ExchangeKind kind = ExchangeKind::gather;
  Span span;
  std::int64_t elements = 0;  ///< number of elements of the whole, which divides into equal parts
                              ///< for the ranks
  std::int64_t element_bytes = 4;
  /// Whether a step may find that no rank has anything to send. Then nothing is exchanged, and the
  /// result is undefined.
  bool may_be_empty = false;
  /// Whether it is empty if experts get equally many tokens: estimates of time leave it out.
  bool empty_if_even = false;

  std::int64_t whole_bytes() const { return elements * element_bytes; }
  /// The bytes of the send buffer, and of the receive buffer.
  std::int64_t bytes_in() const {
    return kind == ExchangeKind::gather ? whole_bytes() / span.ranks : whole_bytes();
  }
  std::int64_t bytes_out() const {
    return kind == ExchangeKind::reduce_scatter ? whole_bytes() / span.ranks : whole_bytes();
  }
};

/// The maximum number of exchanges that a phase reads.
constexpr std::size_t most_reads = 2;

/// A part of a unit's forward or backward that a rank computes without communicating. Phases run
/// one after the other. An exchange runs from the phase that writes its send buffer to the first
/// one that reads its result: phases between these two overlap with it.
struct Phase {
  double flops = 0.0;            ///< floating-point operations; a double, as their number outgrows
                                 ///< 64 bits
  double recompute_flops = 0.0;  ///< operations of a forward that leaves only what backward reads
  std::int64_t workspace_bytes = 0;
  /// The exchange of the phase's send buffer. A later phase has to read it.
  std::optional<Exchange> then = {};
  /// The earlier phases whose exchanges this phase reads, `most_reads` at most.
  std::vector<int> reads = {};
  /// Whether the next phase works in this one's workspace and reads what this one left there.
  /// Otherwise only `saved` passes data to later phases.
  bool keeps_workspace = false;
  /// In a forward: whether the phase writes a part of the unit's output. The last one always does.
  bool writes_output = false;
  /// In a forward: whether the phase writes to `saved`, for backward or for later phases. See
  /// recomputed_phases.
  bool recomputes = true;
  KernelWork work = {};            ///< only for simulated times; else 0 is fine
  KernelWork recompute_work = {};  ///< as for recompute_flops
};

/// Phases in the order in which they run.
using Phases = std::vector<Phase>;

/// The first of the phases `among` that reads the exchange of phase `phase`; -1: none.
int first_reader(const Phases& phases, int phase, const std::vector<int>& among);
/// The indices of all phases: 0, 1, ...
std::vector<int> all_of(const Phases& phases);

/// Whether phase `phase` of a forward writes the output, or a part of it.
inline bool writes_output(const Phases& phases, int phase) {
  return phase + 1 == static_cast<int>(phases.size()) ||
         phases[static_cast<std::size_t>(phase)].writes_output;
}

/// Bytes of the workspace of a phase: the largest of the phases that share it.
std::int64_t workspace_bytes(const Phases& phases, int phase);

/// Throws Error, naming `unit` and `what` (forward or backward), where there is no phase, a phase
/// reads an exchange that was not begun before it, or more than `most_reads`, nothing reads an
/// exchange, or the last phase keeps its workspace.
void check_reads(const Phases& phases, const std::string& unit, const std::string& what);

/// The phases of a forward, from 0 on, that a recompute runs: those that save something for
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
