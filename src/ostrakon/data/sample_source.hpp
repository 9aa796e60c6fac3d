// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/facts.hpp>

namespace ostrakon::data {

/// Samples by global index, each of the same size. A rank asks for the samples of its leaves, so
/// what a sample holds must be a function of its index (and of files and seeds), never of the
/// number of ranks or of the calls before: then runs have the same bits on any number of ranks, and
/// go on from a checkpoint.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// Bytes of one sample in a batch. `samples * sample_bytes()` is the batch_bytes of the model.
  virtual std::int64_t sample_bytes() const = 0;

  /// Writes samples [first, first + count) to `batch`: count * sample_bytes() bytes of host memory,
  /// aligned for any type, in the order in which the units of the model read them. Called on the
  /// thread that trains. Throws Error where they can't be read; the step then ends on all ranks
  /// before any parameter has changed.
  virtual void fill(std::uint64_t first, std::int64_t count, void* batch) = 0;

  /// Writes part `part` of `parts` of the same samples: count * sample_bytes() / parts bytes. Asked
  /// for by a model whose ranks share samples, which says what a part is (model::Model::parts).
  /// Throws Error where there are no parts but the whole.
  virtual void fill_part(std::uint64_t first, std::int64_t count, std::int64_t part,
                         std::int64_t parts, void* batch) {
    (void)part;
    require(parts == 1, "samples are asked for in ", parts,
            " parts, but this SampleSource has whole ones only");
    fill(first, count, batch);
  }

  /// What makes it other data where it differs: {"checksum", "9f0c..."}. Kept in checkpoints; a run
  /// that resumes with other data is refused. Empty: not known, and not compared.
  virtual Facts identity() const { return {}; }
};

}  // namespace ostrakon::data
