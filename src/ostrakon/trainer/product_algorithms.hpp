// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/runtime/program.hpp>
#include <ostrakon/trainer/handlers/step_handlers.hpp>
#include <string>

namespace ostrakon::train {

/// Files of algorithms of products: products.json of a run's folder, or a copy of one.
struct ProductFiles {
  std::string required;  ///< from --products; must be of this library and device
  std::string earlier;   ///< of the run that is resumed; taken where it is of them
};

/// By which algorithms a run multiplies.
struct ProductAlgorithms {
  std::string json;   ///< products.json; empty: products have no algorithms to choose from
  std::string lines;  ///< for the console: where they are from, and what is not as expected
};

/// Throws Error where --products is given to a build whose products have no algorithms to choose
/// from.
void require_product_file(const std::string& file);

/// Pins the algorithms of all products of the programs of all ranks, the same on all ranks: those
/// of a file, and for kinds that it lacks those that rank 0 chooses on its device
/// (math::choose_algorithm). Overwrites the device's arena. Collective; throws CollectiveError
/// where a file can't be read, or the required one is of another library or device.
ProductAlgorithms pin_products(const StepHandlers::Parts& parts, runtime::Arenas arenas,
                               const ProductFiles& files);

/// A line for each product that was not computed by a pinned algorithm so far, on any rank.
/// Collective.
std::string unpinned_lines(comm::Communicator& world);

}  // namespace ostrakon::train
