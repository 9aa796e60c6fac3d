// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/facts.hpp>
#include <vector>

namespace ostrakon::data {

/// Which source of a mixture each sample of a run comes from, and which of its samples it is: a
/// function of the index, the seed and the weights; after a resume with other weights also of those
/// before.
///
/// Samples are drawn in blocks. At the end of each block every source has had its share of all
/// samples so far, to one sample: with weights w of sum W, N samples have floor(N (w_1 + ... + w_k)
/// / W) from the first k sources. The order within a block is random. Each source is drawn from in
/// its own order, whatever the weights, so none of its samples is lost or repeated. Tables have the
/// size of a block, however long the run is.
class MixtureOrder {
 public:
  /// Begins at sample 0. Weights as data::read_files returns them.
  MixtureOrder(std::uint64_t seed, const std::vector<double>& weights);

  struct Drawn {
    std::size_t source = 0;
    std::uint64_t index = 0;  ///< of the samples of this source
  };
  Drawn draw(std::uint64_t sample);

  /// Returns how many of samples [0, samples) are from each source.
  std::vector<std::uint64_t> taken(std::uint64_t samples);

  /// Facts for a checkpoint after `samples` samples: all weights so far, and what was taken.
  Facts facts(std::uint64_t samples);
  /// Continues at sample `samples` with the weights of the constructor, after what the facts of a
  /// checkpoint say; if they say nothing, all samples before were of the first source. The same
  /// weights and seed as before are as if there had been no end. Throws Error for facts that can't
  /// be read or contradict themselves.
  void continue_from(std::uint64_t samples, const Facts& before);

 private:
  /// Samples from `first` on, until the next phase begins.
  struct Phase {
    std::uint64_t first = 0;
    std::uint64_t seed = 0;
    std::vector<double> weights;
    std::vector<std::uint64_t> taken;  ///< before `first`
  };
  /// The samples from `begin` on.
  struct Block {
    const Phase* phase = nullptr;
    std::uint64_t begin = 0;
    std::vector<Drawn> drawn;
  };

  const Phase& phase_of(std::uint64_t sample) const;
  const Block& block_of(std::uint64_t sample);
  static Phase read_phase(const Fact& fact);
  static std::vector<std::uint64_t> shares(const Phase& phase);

  std::vector<Phase> phases_;
  Block block_;
};

}  // namespace ostrakon::data
