// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::data {

/// A bijection of [0, size) chosen by a key, without a table: a Feistel network over the next power
/// of two, walked along its cycle until it is back inside (Black and Rogaway 2002).
class Permutation {
 public:
  /// `size` >= 1.
  Permutation(std::uint64_t size, std::uint64_t key);

  std::uint64_t size() const { return size_; }
  /// `index` < size().
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t size_;
  std::uint64_t key_;
  int low_bits_;
  int high_bits_;
};

/// Where in a file of tokens the sample with a given global index begins: a function of the index
/// and the seed alone, so any rank can find any sample.
class SampleOrder {
 public:
  /// Training. An epoch is a shuffle of windows of sequence_length + 1 tokens that begin
  /// sequence_length apart (each token is predicted once). Each epoch begins the windows at another
  /// offset and shuffles them anew; every epoch has the same number of samples.
  /// Throws Error where `token_count` doesn't hold one sample.
  static SampleOrder shuffled(std::int64_t token_count, std::int64_t sequence_length,
                              std::uint64_t seed);
  /// Validation. The same windows from the first token on, every epoch in the same order: a shuffle
  /// that depends on their number alone, so that the first few samples are spread over the file.
  static SampleOrder fixed(std::int64_t token_count, std::int64_t sequence_length);

  std::uint64_t samples() const { return samples_; }
  std::int64_t first_token(std::uint64_t index) const;

 private:
  SampleOrder(std::int64_t token_count, std::int64_t sequence_length);

  std::int64_t sequence_length_;
  std::int64_t offsets_ = 1;  ///< how many positions the first window may begin at
  std::uint64_t samples_ = 0;
  bool new_order_each_epoch_ = false;
  std::uint64_t key_ = 0;
};

}  // namespace ostrakon::data
