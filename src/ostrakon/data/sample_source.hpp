// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/facts.hpp>

namespace ostrakon::data {

/// One of `parts` equal parts of a sample, for ranks that share samples, in `pieces` pieces, as the
/// model defines (model::Model::context_ranks). The whole sample is one part of one piece.
struct SamplePart {
  std::int64_t index = 0;
  std::int64_t parts = 1;
  std::int64_t pieces = 1;
};

/// Samples by global index, each of the same size. A rank asks for the samples of its leaves, so a
/// sample must be a function of its index (and of files and seeds), never of the number of ranks or
/// of earlier calls. Then runs have the same bits on any number of ranks, and can resume from a
/// checkpoint.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// Bytes of one sample. A batch of the model has batch_bytes = samples * sample_bytes().
  virtual std::int64_t sample_bytes() const = 0;

  /// Writes samples [first, first + count) to `batch`: count * sample_bytes() bytes of host memory,
  /// aligned for any type, in the order in which the units of the model read them. Called by one
  /// thread at a time; with streams on threads this is not the training thread, and runs while that
  /// one computes, so Kokkos may not be called. Throws Error if samples can't be read; the step
  /// then ends on all ranks before any parameter has changed.
  virtual void fill(std::uint64_t first, std::int64_t count, void* batch) = 0;

  /// Writes a part of each of samples [first, first + count): count * sample_bytes() / part.parts
  /// bytes. Throws Error if this source has no parts but the whole.
  virtual void fill_part(std::uint64_t first, std::int64_t count, const SamplePart& part,
                         void* batch) {
    require(part.parts == 1 && part.pieces == 1, "samples are asked for in ", part.parts,
            " parts of ", part.pieces, " pieces, but this SampleSource has whole ones only");
    fill(first, count, batch);
  }

  /// Facts that identify the data: {"checksum", "9f0c..."}. They are kept in checkpoints; a run
  /// that resumes with other data is refused. Empty: unknown, and not compared.
  virtual Facts identity() const { return {}; }

  /// Facts on the choice of the samples before `samples`, where seed and index alone do not say it.
  /// They are kept in checkpoints beside identity(), and not compared.
  virtual Facts choices(std::uint64_t) { return {}; }

  /// Continues at sample `samples` after a resume. `before`: what choices(samples) were at the end
  /// of the run that saved, the same on all ranks. Throws Error for choices that can't be
  /// continued.
  virtual void continue_from(std::uint64_t, const Facts&) {}
};

/// Returns the facts that a checkpoint keeps of the samples of a run that has used `samples`: those
/// of identity(), and those of choices(), whose names begin with chosen_prefix.
Facts facts_to_keep(SampleSource& source, std::uint64_t samples);
constexpr const char* chosen_prefix = "chosen: ";

/// Return from kept facts those of identity(), and those of choices().
Facts kept_identity(const Facts& kept);
Facts kept_choices(const Facts& kept);

}  // namespace ostrakon::data
