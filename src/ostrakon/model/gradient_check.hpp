// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/chain.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace ostrakon::model {

struct GradientCheckSettings {
  std::uint64_t seed = 1;      ///< of values of parameters, and of which elements are compared
  std::int64_t elements = 16;  ///< of each parameter, and of the input of each unit; 0: all
  /// Half the distance of the two points of a difference, times max(1, |value|). 0: 1e-5 for
  /// double, 1e-2 for float.
  double step = 0.0;
  /// Largest relative difference of the two gradients, besides rounding, where they are not small
  /// compared to others of the same array. 0: 1e-6 for double, 1e-2 for float.
  double tolerance = 0.0;
};

/// What is wrong with a unit.
struct GradientProblem {
  std::string unit;
  std::string array;          ///< the parameter's name, "input", "saved", ...
  std::int64_t element = -1;  ///< of the array (of `saved`: byte); -1: not one of them
  double backward = 0.0;      ///< its gradient as backward gives it, and
  double difference = 0.0;    ///< the central difference of the loss
  std::string text;           ///< all of it, as a sentence
};

struct GradientReport {
  std::vector<GradientProblem> problems;  ///< of the first unit first; at most one of an array
  std::int64_t compared = 0;              ///< gradients
  /// Gradients that are small next to the output, so that rounding could be more than 1e-2 (or the
  /// tolerance, if larger) of them: not compared. In float an array of them is a problem.
  std::int64_t too_small = 0;

  bool passed() const { return problems.empty(); }
  /// A line for each problem, or how many gradients were compared; without the last end of line.
  std::string text() const;
};

/// check_gradients() of the types that it takes.
template <class T>
GradientReport check_units(const Chain<T>& chain, const void* batch,
                           const GradientCheckSettings& settings);

/// Checks forward and backward of each unit of a chain by itself, with the outputs of those before
/// it as input, and parameters that are random around their initial values:
///
/// - gradients of parameters and of the input against central differences of the loss, or for a
///   unit before the last of a random linear function of its output: so the unit that is wrong is
///   named, not those before it;
/// - backward writes all gradients, and adds to them where a unit is tied to this one;
/// - backward of the loss unit multiplies its losses with loss_scale;
/// - forward and backward have the same bits where they are called twice alike;
/// - a forward that recomputes restores `saved` bit for bit;
/// - nothing is written next to a buffer (a few hundred bytes), between two gradients of parameters
///   (where they end before a multiple of 64 elements), to what may only be read, or to an array
///   that the call does not have: `output` where it recomputes, gradients of frozen parameters.
///   Such arrays are empty: ask for their size().
///
/// `batch`: the samples of a leaf in host memory, chain.leaf().bytes(). T: double is the sharper
/// check: write units as templates, and check Chain<double>. Or float. Takes no ranks: the same on
/// each. Throws Error where a unit does, and where one exchanges activations over several ranks.
template <class T>
GradientReport check_gradients(const Chain<T>& chain, const void* batch,
                               const GradientCheckSettings& settings = {}) {
  static_assert(std::is_same<T, double>::value || std::is_same<T, float>::value,
                "check_gradients takes a Chain of double or float: differences in 16 bits are "
                "too coarse");
  return check_units(chain, batch, settings);
}

}  // namespace ostrakon::model
