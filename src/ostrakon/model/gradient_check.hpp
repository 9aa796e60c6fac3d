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
  std::string array;          ///< the parameter's name, "input", "output", or an operation's name
  std::int64_t element = -1;  ///< of the array; -1: not one of them
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

/// Checks each unit of a chain by itself, with the outputs of those before it as input, and
/// parameters that are random around their initial values:
///
/// - gradients of parameters and of the input against central differences of the loss, multiplied
///   with a loss_scale, or for a unit before the last of a random linear function of its output: so
///   the unit that is wrong is named, not those before it.
///
/// And each call of an operation of one's own by itself, in copies of its arrays:
///
/// - nothing is written next to an array (a few hundred bytes), to what may only be read, or to an
///   array that the call does not have, such as gradients of frozen parameters. Such arrays are
///   empty: ask for their size();
/// - all that has to be written is;
/// - calls that are repeated leave the same bits;
/// - some of the rows, or of the columns of an operation by element, have the same values as all,
///   bit for bit where matrix products are the library's own (in float, on a host). So a backward
///   that computes forward again has what forward had.
///
/// What is next to an array, or backward does not say that it reads, is not a number.
///
/// `batch`: the samples of a leaf in host memory, chain.leaf().bytes(). T: double is the sharper
/// check: write units as templates, and check Chain<double>. Or float. Takes no ranks: the same on
/// each. Throws Error where a kernel does, and where the chain is for several tensor ranks.
template <class T>
GradientReport check_gradients(const Chain<T>& chain, const void* batch,
                               const GradientCheckSettings& settings = {}) {
  static_assert(std::is_same<T, double>::value || std::is_same<T, float>::value,
                "check_gradients takes a Chain of double or float: differences in 16 bits are "
                "too coarse");
  return check_units(chain, batch, settings);
}

}  // namespace ostrakon::model
