// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ostrakon {

/// Hashes eight bytes at a time, mixed as in xxHash's lanes: fast, as whole plans are hashed at
/// every start.
class Hasher {
 public:
  /// Adds strings, numbers and enumerators.
  template <class... Values>
  void add(const Values&... values) {
    (add_one(values), ...);
  }
  std::uint64_t value() const {
    std::uint64_t mixed = (state_ ^ state_ >> 33) * second_prime;
    mixed = (mixed ^ mixed >> 29) * third_prime;
    return mixed ^ mixed >> 32;
  }

 private:
  static constexpr std::uint64_t first_prime = 0x9e3779b185ebca87ull;
  static constexpr std::uint64_t second_prime = 0xc2b2ae3d27d4eb4full;
  static constexpr std::uint64_t third_prime = 0x165667b19e3779f9ull;

  void add_one(const std::string& value) {
    add_one(value.size());
    for (std::size_t begin = 0; begin < value.size(); begin += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      const std::size_t end = std::min(begin + sizeof word, value.size());
      for (std::size_t i = end; i > begin; --i)
        word = word << 8 | static_cast<unsigned char>(value[i - 1]);
      step(word);
    }
  }
  template <class Value>
  void add_one(Value value) {
    step(static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }
  void step(std::uint64_t word) {
    state_ ^= word * second_prime;
    state_ = (state_ << 27 | state_ >> 37) * first_prime + third_prime;
  }
  std::uint64_t state_ = third_prime;
};

}  // namespace ostrakon
