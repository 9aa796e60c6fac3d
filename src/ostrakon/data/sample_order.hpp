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

  std::uint64_t samples() const { return samples_; }
  std::int64_t first_token(std::uint64_t index) const;

 private:
  SampleOrder(std::int64_t token_count, std::int64_t sequence_length);

  std::int64_t sequence_length_;
  std::int64_t offsets_ = 1;  ///< number of possible offsets of the first window
  std::uint64_t samples_ = 0;
  bool new_order_each_epoch_ = false;
  std::uint64_t key_ = 0;
};

}  // namespace ostrakon::data
