// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/names.hpp>
#include <ostrakon/plan/axes.hpp>
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
/// rank there is nothing to do: the next phase finds what the one before has handed over.
struct Exchange {
  ExchangeKind kind = ExchangeKind::gather;
  Span span;
  std::int64_t elements = 0;  ///< of the whole, which divides into equal parts for the ranks
  std::int64_t element_bytes = 4;

  std::int64_t whole_bytes() const { return elements * element_bytes; }
  /// Of what a rank sends, and of what it receives.
  std::int64_t bytes_in() const {
    return kind == ExchangeKind::gather ? whole_bytes() / span.ranks : whole_bytes();
  }
  std::int64_t bytes_out() const {
    return kind == ExchangeKind::reduce_scatter ? whole_bytes() / span.ranks : whole_bytes();
  }
};

/// A piece of a unit's forward or backward that a rank computes without talking to others.
struct Phase {
  double flops = 0.0;            ///< floating-point operations; their number outgrows 64 bits
  double recompute_flops = 0.0;  ///< of a forward's, where it leaves only what backward reads
  std::int64_t workspace_bytes = 0;
  /// Before the next phase; none after the last. Phases without one in between pass on what is in
  /// `saved`, each with a workspace of its own.
  std::optional<Exchange> then = {};
  /// An earlier phase whose exchange this one reads again, besides the one before it; -1: none.
  int reads_again = -1;
  /// Of a forward's: whether it does anything where only what it saves is wanted. The last ones
  /// that don't are left out of a recompute, with the exchanges before them.
  bool recomputes = true;
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

/// What each phase reads again; empty where none does.
inline std::vector<int> read_again(const Phases& phases) {
  std::vector<int> all;
  bool any = false;
  for (const Phase& phase : phases) {
    all.push_back(phase.reads_again);
    any = any || phase.reads_again >= 0;
  }
  return any ? all : std::vector<int>();
}

/// How many of a forward's phases a recompute has: without the last ones that do nothing in it, but
/// at least one.
inline int recomputed_phases(const Phases& forward) {
  auto count = static_cast<int>(forward.size());
  while (count > 1 && !forward[static_cast<std::size_t>(count) - 1].recomputes) --count;
  return count;
}

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
