// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/evaluate/sequences.hpp>

#include <algorithm>

namespace ostrakon::evaluate {

void SequencesInMemory::read(std::int64_t sequence, std::int64_t begin, std::int64_t count,
                             std::int32_t* tokens, std::uint8_t* counts) const {
  std::copy_n(at(sequence).tokens.begin() + begin, count, tokens);
  std::fill_n(counts, count, std::uint8_t{1});
}

namespace {

template <class T>
void share_values(comm::Communicator& world, std::vector<T>& values) {
  auto count = static_cast<std::int64_t>(values.size());
  world.broadcast(&count, sizeof count, 0);
  values.resize(static_cast<std::size_t>(count));
  world.broadcast(values.data(), count * static_cast<std::int64_t>(sizeof(T)), 0);
}

}  // namespace

void share(comm::Communicator& world, std::vector<Sequence>& sequences) {
  std::vector<std::int64_t> sizes;  // of each its tokens, and the first that is predicted
  std::vector<std::int32_t> tokens;
  for (const Sequence& one : sequences) {
    sizes.push_back(static_cast<std::int64_t>(one.tokens.size()));
    sizes.push_back(one.first);
    tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
  }
  share_values(world, sizes);
  share_values(world, tokens);
  sequences.resize(sizes.size() / 2);
  auto from = tokens.begin();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    sequences[i] = {{from, from + sizes[2 * i]}, sizes[2 * i + 1]};
    from += sizes[2 * i];
  }
}

void SequenceOfFile::read(std::int64_t, std::int64_t begin, std::int64_t count,
                          std::int32_t* tokens, std::uint8_t* counts) const {
  file_.read(begin, count, tokens, counts);
}

}  // namespace ostrakon::evaluate
