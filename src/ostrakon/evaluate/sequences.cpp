// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/evaluate/sequences.hpp>

#include <algorithm>

namespace ostrakon::evaluate {

void SequencesInMemory::read(std::int64_t sequence, std::int64_t begin, std::int64_t count,
                             std::int32_t* tokens, std::uint8_t* counts) const {
  std::copy_n(at(sequence).tokens.begin() + begin, count, tokens);
  std::fill_n(counts, count, std::uint8_t{1});
}

void SequenceOfFile::read(std::int64_t, std::int64_t begin, std::int64_t count,
                          std::int32_t* tokens, std::uint8_t* counts) const {
  file_.read(begin, count, tokens, counts);
}

}  // namespace ostrakon::evaluate
