// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/axes.hpp>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/purpose.hpp>
#include <ostrakon/plan/space.hpp>

namespace ostrakon::plan {

/// How an array of a unit's parameters, or of what is like them, lies: what it is divided over, in
/// which memory, with how many bytes per element. In DTensor's words, what `divided` names is
/// Shard; all other axes are Replicate.
struct Layout {
  Spans divided;
  Space space = Space::device;
  std::int64_t element_bytes = 4;

  friend bool operator==(const Layout& a, const Layout& b) {
    return a.divided == b.divided && a.space == b.space && a.element_bytes == b.element_bytes;
  }
  friend bool operator!=(const Layout& a, const Layout& b) { return !(a == b); }

  Layout in(Space other) const { return {divided, other, element_bytes}; }
  Layout over(const Spans& other) const { return {other, space, element_bytes}; }
};

/// The five layouts of a flat parameter, which say all of a strategy: sharding, hybrid sharding,
/// offload and precision. Passes read from this table who gathers, what waits on the host and
/// whether there is a compute copy.
struct Layouts {
  Layout masters;   ///< as updated, from step to step
  Layout compute;   ///< copies to compute with, from step to step; or the masters where there are
                    ///< none
  Layout gathered;  ///< as forward and backward read them; backward's gradients are divided alike
  Layout gradient;  ///< summed over all leaves
  Layout update;    ///< what a rank updates of them, where it does: moments lie so
  std::int64_t reduce_element_bytes = 4;  ///< of gradients as sent within a shard group
  // In which order leaves' gradients are summed, which decides the bits of the sums: sum_order.hpp.
  Accumulation accumulation = Accumulation::reduce_last;  ///< never automatic
  std::int64_t sum_grain = 0;                             ///< 0: one tree over all leaves
  Summation summation = Summation::ordered;               ///< over ranks
  std::int64_t leaves_at_once = 1;                        ///< that units have summed before
  std::int64_t sample_grain = 1;                          ///< ModelDescription::sample_grain
  std::int64_t tensor_grain = 1;                          ///< ModelDescription::tensor_grain
  bool splits_ties = false;          ///< as ModelDescription: one rank's sums are others
  bool cuts_16bit_products = false;  ///< by rows, which one rank does not: bits are the library's
  int parts = 1;                     ///< UnitDescription::parts of the units whose table it is
  bool cuts_matrices = true;         ///< UnitDescription::cuts_matrices, the same
  bool updates_early = false;  ///< a unit is updated before the sums over all of the step are known
  /// Units are, those without whole matrices, and these updates are verified once the sums are
  /// known.
  bool updates_optimistically = false;

  /// Whether gradients are rounded to be sent over a span. Between replicas they are sent as they
  /// are, and so are sums of a node's ranks: rounded once, they have the same bits whether there is
  /// such a level or not.
  bool rounds(const Span& span) const {
    return span.axis == Axis::shard && span.stride == parts &&
           reduce_element_bytes != gradient.element_bytes;
  }
  std::int64_t reduce_element_bytes_over(const Span& span) const {
    return rounds(span) ? reduce_element_bytes : gradient.element_bytes;
  }

  /// Whether there are compute copies in addition to the masters.
  bool has_copies() const { return compute != masters; }
  /// Whether parameters must be gathered, converted or copied before they are read.
  bool gathers() const { return gathered != compute; }
  /// Whether gradients are summed, or copied, overlapped with compute.
  bool reduces() const {
    return gradient.divided != gathered.divided || gradient.space == Space::host;
  }
  /// Whether something is brought to where a rank updates, or the update itself overlaps with
  /// compute, so that those of several units may be in flight.
  bool updates_ahead() const {
    return gradient.divided != update.divided || masters.space == Space::host;
  }
};

/// What flat parameters are divided over where units compute with them. `parts`:
/// UnitDescription::parts.
Spans unit_spans(const Grid& grid, int parts = 1);

/// What of a unit a rank has to have to orthogonalize the matrices of which it updates some: its
/// part, in which they are whole; everything where tensor ranks have pieces of them.
Spans matrix_spans(const Grid& grid, const Layouts& of_unit);

/// The table of a unit. Where its parameters are in parts, each of the five is divided over these
/// first, and over the ranks of an axis that are left then.
Layouts layouts_of_unit(const Layouts& layouts, const Grid& grid, const UnitDescription& unit);

/// The table. A pure function of the policy, the sizes of the axes, the element sizes that the
/// model says, and what the plan is for.
Layouts find_layouts(const Policy& policy, const ModelDescription& model, const Grid& grid,
                     Purpose purpose);

}  // namespace ostrakon::plan
