// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/data/dataset.hpp>
#include <vector>

namespace ostrakon::data {

struct MixtureSource {
  WeightedFile file;
  std::unique_ptr<Dataset> data;
};

/// Returns samples of several sources in the order of a MixtureOrder. Sources are known by their
/// place: a run may resume with other weights, and with more sources at the end. Throws Error if
/// they have different tokenizers.
std::unique_ptr<Dataset> make_mixture(std::vector<MixtureSource> sources, std::uint64_t seed);

}  // namespace ostrakon::data
