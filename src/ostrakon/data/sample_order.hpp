// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::data {

/// A pseudorandom bijection of [0, size) by a key, without a table: a Feistel network over the next
/// power of two, applied repeatedly until the result is below size (Black and Rogaway 2002).
class Permutation {
 public:
  /// `size` is at least 1.
  Permutation(std::uint64_t size, std::uint64_t key);

  std::uint64_t size() const { return size_; }
  /// `index` is below size().
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t size_;
  std::uint64_t key_;
  int low_bits_;
  int high_bits_;
};

/// The samples of each epoch in another random order, or of all epochs in the same one: a function
/// of the index and the seed alone.
class EpochOrder {
 public:
  /// Order for training.
  static EpochOrder shuffled(std::uint64_t samples, std::uint64_t seed);
  /// Order for validation, which depends on the number of samples alone.
  static EpochOrder fixed(std::uint64_t samples);

  std::uint64_t samples() const { return samples_; }
  /// Returns which of [0, samples()) comes at `index`.
  std::uint64_t operator()(std::uint64_t index) const;
  /// Returns a random number from 0 to `size` - 1 of the epoch of `index`.
  std::uint64_t draw(std::uint64_t index, std::uint64_t size) const;

 private:
  EpochOrder(std::uint64_t samples, std::uint64_t key, bool changes)
      : samples_(samples), key_(key), changes_(changes) {}
  std::uint64_t epoch(std::uint64_t index) const { return changes_ ? index / samples_ : 0; }

  std::uint64_t samples_;
  std::uint64_t key_;
  bool changes_;  ///< whether each epoch has its own order
};

/// The position in a token file of the sample with a given global index: a function of the index
/// and the seed alone, so that any rank can find any sample.
class SampleOrder {
 public:
  /// Order for training. An epoch is a shuffle of windows of sequence_length + 1 tokens that begin
  /// sequence_length apart, so that each token is predicted once. Each epoch begins the windows at
  /// another offset and shuffles them anew; all epochs have the same number of samples. Throws
  /// Error if `token_count` is too small for one sample.
  static SampleOrder shuffled(std::int64_t token_count, std::int64_t sequence_length,
                              std::uint64_t seed);
  /// Order for validation. All epochs have the same windows, beginning at the first token, in the
  /// same order: a shuffle that depends on their number alone, so that the first few samples are
  /// spread over the file.
  static SampleOrder fixed(std::int64_t token_count, std::int64_t sequence_length);

  std::uint64_t samples() const { return order_.samples(); }
  std::int64_t first_token(std::uint64_t index) const;

 private:
  SampleOrder(std::int64_t sequence_length, std::int64_t offsets, const EpochOrder& order)
      : sequence_length_(sequence_length), offsets_(offsets), order_(order) {}

  std::int64_t sequence_length_;
  std::int64_t offsets_;  ///< number of possible offsets of the first window
  EpochOrder order_;
};

}  // namespace ostrakon::data
