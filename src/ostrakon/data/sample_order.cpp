// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/sample_order.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/data/random_integer.hpp>

namespace ostrakon::data {
namespace {

// Four rounds make a Feistel network over random functions a strong pseudorandom permutation (Luby
// and Rackoff 1988). In small networks each round has few bits to mix, so a few more are used.
constexpr int feistel_rounds = 8;

std::uint64_t mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

/// Throws Error if there is no sample of this length.
void require_sample(std::int64_t token_count, std::int64_t sequence_length) {
  require(sequence_length >= 1, "a sequence length of ", sequence_length, "; expected at least 1");
  require(token_count > sequence_length, "too few tokens: it holds ", token_count,
          ", and one sample of sequence length ", sequence_length, " needs ", sequence_length + 1);
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t key) : size_(size), key_(key) {
  require(size >= 1 && size <= std::uint64_t{1} << 62, "a permutation of ", size, " numbers");
  int bits = 0;
  while ((std::uint64_t{1} << bits) < size) ++bits;
  high_bits_ = bits / 2;
  low_bits_ = bits - high_bits_;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  if (size_ == 1) return 0;
  do {
    std::uint64_t low = index & mask(low_bits_);
    std::uint64_t high = index >> low_bits_;
    for (int round = 0; round < feistel_rounds; round += 2) {
      high ^= random_integer(key_, low, static_cast<std::uint64_t>(round)) & mask(high_bits_);
      low ^= random_integer(key_, high, static_cast<std::uint64_t>(round + 1)) & mask(low_bits_);
    }
    index = high << low_bits_ | low;
  } while (index >= size_);
  return index;
}

EpochOrder EpochOrder::shuffled(std::uint64_t samples, std::uint64_t seed) {
  return {samples, math::random_key(seed, "sample order"), true};
}

EpochOrder EpochOrder::fixed(std::uint64_t samples) {
  return {samples, math::random_key(0, "validation order"), false};
}

std::uint64_t EpochOrder::operator()(std::uint64_t index) const {
  const Permutation order(samples_, random_integer(key_, epoch(index), 0));
  return order(index % samples_);
}

std::uint64_t EpochOrder::draw(std::uint64_t index, std::uint64_t size) const {
  return random_integer(key_, epoch(index), 1) % size;
}

SampleOrder SampleOrder::shuffled(std::int64_t token_count, std::int64_t sequence_length,
                                  std::uint64_t seed) {
  require_sample(token_count, sequence_length);
  // A short text has fewer offsets to choose from, but always one sample.
  const std::int64_t offsets = std::min(sequence_length, token_count - sequence_length);
  const auto samples = static_cast<std::uint64_t>((token_count - offsets) / sequence_length);
  return {sequence_length, offsets, EpochOrder::shuffled(samples, seed)};
}

SampleOrder SampleOrder::fixed(std::int64_t token_count, std::int64_t sequence_length) {
  require_sample(token_count, sequence_length);
  const auto samples = static_cast<std::uint64_t>((token_count - 1) / sequence_length);
  return {sequence_length, 1, EpochOrder::fixed(samples)};
}

std::int64_t SampleOrder::first_token(std::uint64_t index) const {
  const auto offset =
      static_cast<std::int64_t>(order_.draw(index, static_cast<std::uint64_t>(offsets_)));
  return offset + static_cast<std::int64_t>(order_(index)) * sequence_length_;
}

}  // namespace ostrakon::data
