// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/model/model.hpp>

namespace ostrakon::bench {

/// A chain of `layers` layers, units "block.0", "block.1", ... between an embedding and a loss, of
/// `width` elements each: u = w x, y = u + u^2 / 2, element by element. Backward replaces u by
/// dL/du; the gradient of w, which is deferred, uses that and x, and no further memory.
std::unique_ptr<model::Model> make_layers(std::int64_t layers, std::int64_t width);

/// Empty samples for these layers, which do not read any.
class NoSamples final : public data::SampleSource {
 public:
  static constexpr std::int64_t bytes = 64;

  std::int64_t sample_bytes() const override { return bytes; }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override;
};

}  // namespace ostrakon::bench
