// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/model.hpp>
#include <ostrakon/model/gradient_check.hpp>
#include <vector>

// Compares backward of a model of your own with finite differences of its forward: see
// docs/own-models.md.
//
//     const ostrakon::GradientReport report = ostrakon::check_gradients(chain, samples);
//     if (!report.passed()) throw ostrakon::Error(report.text());
//
// The public interface is what the headers in this folder declare or name here, and no other
// header.

namespace ostrakon {

using model::check_gradients;
using model::GradientCheckSettings;
using model::GradientProblem;
using model::GradientReport;

/// Uses the first leaf of `samples`. Throws Error also if samples have another size than the chain
/// states, or can't be read.
template <class T>
GradientReport check_gradients(const Chain<T>& chain, data::SampleSource& samples,
                               const GradientCheckSettings& settings = {}) {
  require(samples.sample_bytes() == chain.leaf().sample_bytes, "samples have ",
          samples.sample_bytes(), " bytes; the chain expects ", chain.leaf().sample_bytes);
  std::vector<std::byte> batch(static_cast<std::size_t>(chain.leaf().bytes()));
  samples.fill(0, chain.leaf().samples, batch.data());
  return model::check_gradients(chain, batch.data(), settings);
}

}  // namespace ostrakon
