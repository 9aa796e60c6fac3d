// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/axes.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/kinds.hpp>
#include <ostrakon/plan/ir/policy.hpp>

namespace ostrakon::plan {

/// The layout of an array of a unit's parameters, gradients or moments: the spans that it is
/// divided over, its memory space, and its bytes per element, or that it is quantized: as
/// QuantizedFlat says, in bytes. In DTensor's terms, axes in `divided` are Shard; all others are
/// Replicate.
struct Layout {
  Spans divided;
  Space space = Space::device;
  std::int64_t element_bytes = 4;
  bool quantized = false;

  friend bool operator==(const Layout& a, const Layout& b) {
    return a.divided == b.divided && a.space == b.space && a.element_bytes == b.element_bytes &&
           a.quantized == b.quantized;
  }
  friend bool operator!=(const Layout& a, const Layout& b) { return !(a == b); }

  Layout in(Space other) const { return {divided, other, element_bytes, quantized}; }
  Layout over(const Spans& other) const { return {other, space, element_bytes, quantized}; }
  Layout as_quantized() const { return {divided, space, 1, true}; }
};

/// The five layouts of a flat parameter, which define a strategy: sharding, hybrid sharding,
/// offload and precision. Passes read from this table who gathers, which arrays wait on the host
/// and whether there is a compute copy.
struct Layouts {
  Layout masters;   ///< masters, which are updated; kept from step to step
  Layout compute;   ///< copies to compute with, kept from step to step; the masters where there are
                    ///< none
  Layout gathered;  ///< parameters that forward and backward read; backward's gradients are divided
                    ///< like them
  Layout gradient;  ///< gradients summed over all leaves
  Layout update;    ///< the part that a rank updates, where it does so; moments have this layout
  std::int64_t reduce_element_bytes = 4;  ///< bytes of a gradient as sent within a shard group
  // The order in which gradients of leaves are summed decides the bits of the sums: sum_order.hpp.
  Accumulation accumulation = Accumulation::reduce_last;  ///< never automatic
  std::int64_t sum_grain = 0;                             ///< 0: one tree over all leaves
  Summation summation = Summation::ordered;               ///< implementation of sums over ranks
  std::int64_t leaves_at_once = 1;                        ///< number of leaves that units have
                                                          ///< summed already
  std::int64_t sample_grain = 1;                          ///< ModelDescription::sample_grain
  std::int64_t tensor_grain = 1;                          ///< ModelDescription::tensor_grain
  bool splits_ties = false;          ///< as in ModelDescription: sums differ from one rank's
  bool cuts_16bit_products = false;  ///< whether products are cut by rows, so that bits depend on
                                     ///< the library
  int sharing_ranks = 1;      ///< neighbours that share samples or experts: sharing_ranks() in
                              ///< sum_order.hpp
  int expert_ranks = 1;       ///< UnitDescription::expert_ranks of the units that this table is for
  bool cuts_matrices = true;  ///< UnitDescription::cuts_matrices of these units
  /// Whether frozen parameters have no masters, but compute copies alone.
  bool frozen_without_masters = false;
  bool updates_early = false;  ///< whether a unit is updated before the sums over the whole step
                               ///< are known
  /// Whether units without whole matrices are updated before these sums are known, and the updates
  /// verified afterwards.
  bool updates_optimistically = false;

  /// Whether gradients are rounded to be sent over a span. Between replicas they are sent without
  /// rounding, and so are sums of a node's ranks: rounded once, they have the same bits with and
  /// without such a level.
  bool rounds(const Span& span) const {
    return span.axis == Axis::shard && span.stride == expert_ranks &&
           reduce_element_bytes != gradient.element_bytes;
  }
  std::int64_t reduce_element_bytes_over(const Span& span) const {
    return rounds(span) ? reduce_element_bytes : gradient.element_bytes;
  }

  /// Whether there are compute copies in addition to the masters.
  bool has_copies() const { return compute != masters; }
  /// Whether parameters must be gathered, converted or copied before they are read.
  bool gathers() const { return gathered != compute; }
  /// Whether gradients are summed or copied on other streams, overlapped with compute.
  bool reduces() const {
    return gradient.divided != gathered.divided || gradient.space == Space::host;
  }
  /// Whether an update needs transfers, or itself overlaps with compute, so that several may be in
  /// flight.
  bool updates_ahead() const {
    return gradient.divided != update.divided || masters.space == Space::host;
  }
};

/// The spans that flat parameters are divided over while units compute with them. `parts`:
/// UnitDescription::expert_ranks.
Spans unit_spans(const Grid& grid, int parts = 1);

/// The spans that divide the part of a unit that a rank needs to orthogonalize matrices of which it
/// updates some elements: its own part if matrices are whole in it; empty where tensor ranks have
/// pieces of them.
Spans matrix_spans(const Grid& grid, const Layouts& of_unit);

/// The table of a unit. If its parameters are in parts, each of the five layouts is divided over
/// these first, then over the remaining ranks of an axis.
Layouts layouts_of_unit(const Layouts& layouts, const Grid& grid, const UnitDescription& unit);

/// The table of a step. A pure function of the policy, the sizes of the axes, the element sizes of
/// the model, and the purpose of the plan.
Layouts find_layouts(const Policy& policy, const ModelDescription& model, const Grid& grid,
                     Purpose purpose);

}  // namespace ostrakon::plan
