// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>
#include <type_traits>

namespace ostrakon::train {

/// Returns work(), which is about files below the path of a deck's key, "data.path". If it throws
/// an CollectiveError, adds how the path was given: see config::path_origin.
template <class Work>
std::invoke_result_t<const Work&> about_path(const config::Settings& settings,
                                             const std::string& key, const Work& work) {
  try {
    return work();
  } catch (const CollectiveError& error) {
    throw CollectiveError(text(config::path_origin(settings, key), ": ", error.what()));
  }
}

}  // namespace ostrakon::train
