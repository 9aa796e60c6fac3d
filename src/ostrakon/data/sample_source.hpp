// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/facts.hpp>

namespace ostrakon::data {

/// One of `parts` equal parts of a sample, for ranks that share samples, in `pieces` pieces, as the
/// model says (model::Model::parts). All of it: one part of one piece.
struct SamplePart {
  std::int64_t index = 0;
  std::int64_t parts = 1;
  std::int64_t pieces = 1;
};

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
  /// aligned for any type, in the order in which the units of the model read them. Called by one
  /// thread at a time, which with streams on threads is not the one that trains, and while that one
  /// computes: Kokkos is not to be called. Throws Error where they can't be read; the step then
  /// ends on all ranks before any parameter has changed.
  virtual void fill(std::uint64_t first, std::int64_t count, void* batch) = 0;

  /// Writes a part of each of the same samples: count * sample_bytes() / part.parts bytes. Throws
  /// Error where there are no parts but the whole.
  virtual void fill_part(std::uint64_t first, std::int64_t count, const SamplePart& part,
                         void* batch) {
    require(part.parts == 1 && part.pieces == 1, "samples are asked for in ", part.parts,
            " parts of ", part.pieces, " pieces, but this SampleSource has whole ones only");
    fill(first, count, batch);
  }

  /// What makes it other data where it differs: {"checksum", "9f0c..."}. Kept in checkpoints; a run
  /// that resumes with other data is refused. Empty: not known, and not compared.
  virtual Facts identity() const { return {}; }
};

}  // namespace ostrakon::data
