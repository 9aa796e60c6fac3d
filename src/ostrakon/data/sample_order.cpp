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

SampleOrder::SampleOrder(std::int64_t token_count, std::int64_t sequence_length)
    : sequence_length_(sequence_length) {
  require(sequence_length >= 1, "a sequence length of ", sequence_length, "; expected at least 1");
  require(token_count > sequence_length, "too few tokens: it holds ", token_count,
          ", and one sample of sequence length ", sequence_length, " needs ", sequence_length + 1);
}

SampleOrder SampleOrder::shuffled(std::int64_t token_count, std::int64_t sequence_length,
                                  std::uint64_t seed) {
  SampleOrder order(token_count, sequence_length);
  // A short text has fewer offsets to choose from, but always one sample.
  order.offsets_ = std::min(sequence_length, token_count - sequence_length);
  order.samples_ = static_cast<std::uint64_t>((token_count - order.offsets_) / sequence_length);
  order.new_order_each_epoch_ = true;
  order.key_ = math::random_key(seed, "sample order");
  return order;
}

SampleOrder SampleOrder::fixed(std::int64_t token_count, std::int64_t sequence_length) {
  SampleOrder order(token_count, sequence_length);
  order.samples_ = static_cast<std::uint64_t>((token_count - 1) / sequence_length);
  order.key_ = math::random_key(0, "validation order");
  return order;
}

std::int64_t SampleOrder::first_token(std::uint64_t index) const {
  const std::uint64_t epoch = new_order_each_epoch_ ? index / samples_ : 0;
  const Permutation order(samples_, random_integer(key_, epoch, 0));
  const std::uint64_t window = order(index % samples_);
  const std::uint64_t offset =
      random_integer(key_, epoch, 1) % static_cast<std::uint64_t>(offsets_);
  return static_cast<std::int64_t>(offset) + static_cast<std::int64_t>(window) * sequence_length_;
}

}  // namespace ostrakon::data
