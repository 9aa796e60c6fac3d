// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/pair_dataset.hpp>

#include <algorithm>
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::data {
namespace {

/// Throws Error unless the documents of a file are pairs that fit into samples of so many places.
void require_pairs_of(const TokenFile& file, const std::vector<std::int64_t>& offsets,
                      std::int64_t places) {
  require(file.info().pairs.value_or(0) > 0, "token file '", file.path(),
          "' has no pairs of answers, which training.objective = dpo takes; expected a file that "
          "`ostrakon-data build --pairs` has written");
  std::int64_t too_long = 0, longest = 0;
  for (std::size_t d = 0; d + 2 < offsets.size(); d += 2) {
    const std::int64_t chosen = offsets[d + 1] - offsets[d],
                       rejected = offsets[d + 2] - offsets[d + 1];
    require(chosen >= 2 && rejected >= 2, "token file '", file.path(), "': the answers of pair ",
            d / 2, " have ", chosen, " and ", rejected,
            " tokens with their prompt; expected at least 2 each");
    const std::int64_t needed = chosen + rejected - 2;
    too_long += needed > places ? 1 : 0;
    longest = std::max(longest, needed);
  }
  require(too_long == 0, "token file '", file.path(), "': ", too_long, " of ", *file.info().pairs,
          " pairs have more tokens than training.sequence_length = ", places,
          ", in which both answers of a pair, each with the prompt, are one behind the other; ",
          "expected ", longest, " or more, or a file without them (`ostrakon-data build --pairs ",
          "--longest ", places, "`)");
}

EpochOrder order_of_pairs(std::uint64_t pairs, Split split, std::uint64_t seed) {
  return split == Split::training ? EpochOrder::shuffled(pairs, seed) : EpochOrder::fixed(pairs);
}

}  // namespace

PairDataset::PairDataset(TokenFile file, Split split, std::int64_t sequence_length,
                         std::uint64_t seed)
    : Dataset(sequence_length + 1),
      file_(std::move(file)),
      offsets_(file_.document_offsets()),
      order_(order_of_pairs((offsets_.size() - 1) / 2, split, seed)),
      references_(offsets_.size() - 1),
      tokens_(static_cast<std::size_t>(length())),
      counts_(static_cast<std::size_t>(length())),
      targets_(static_cast<std::size_t>(sequence_length)),
      begins_(static_cast<std::size_t>(sequence_length)) {
  require_pairs_of(file_, offsets_, sequence_length);
}

void PairDataset::read(std::uint64_t index, std::int32_t* tokens) {
  read_rows(index, {tokens, targets_.data(), begins_.data()});
  tokens[length() - 1] = std::max(targets_.back(), 0);
}

void PairDataset::read_rows(std::uint64_t index, const SampleRows& rows) {
  std::int64_t at = 0;
  const auto first = static_cast<std::size_t>(2 * pair(index));
  for (const std::size_t document : {first, first + 1}) {
    const std::int64_t places = offsets_[document + 1] - offsets_[document] - 1;
    file_.read(offsets_[document], places + 1, tokens_.data(), counts_.data());
    for (std::int64_t i = 0; i < places; ++i) {
      const auto k = static_cast<std::size_t>(i);
      rows.tokens[at + i] = tokens_[k];
      rows.targets[at + i] = counts_[k + 1] == 0 ? not_counted : tokens_[k + 1];
      rows.document_begins[at + i] = static_cast<std::int32_t>(at);
    }
    at += places;
  }
  for (; at + 1 < length(); ++at) {
    rows.tokens[at] = 0;
    rows.targets[at] = not_counted;
    rows.document_begins[at] = static_cast<std::int32_t>(at);
  }
}

void PairDataset::fill_part(std::uint64_t first, std::int64_t count, const SamplePart& part,
                            void* batch) {
  if (part.parts != 1 || part.pieces != 1)
    throw std::logic_error("a pair of answers has no parts but the whole");
  Dataset::fill_part(first, count, part, batch);
  constexpr std::size_t bytes = 2 * sizeof(float);
  char* to = static_cast<char*>(batch) + count * Dataset::sample_bytes();
  for (std::int64_t s = 0; s < count; ++s, to += bytes)
    std::memcpy(to, &references_[2 * pair(first + static_cast<std::uint64_t>(s))], bytes);
}

std::int64_t PairDataset::sample_bytes() const {
  return Dataset::sample_bytes() + static_cast<std::int64_t>(2 * sizeof(float));
}

Facts PairDataset::identity() const {
  Facts facts = identity_of_file();
  if (!references_checksum_.empty())
    facts.push_back({"checksum of the reference's log-probabilities", references_checksum_});
  return facts;
}

double PairDataset::padding() const {
  const double pairs = static_cast<double>(order_.samples());
  const double used = static_cast<double>(offsets_.back()) - 2.0 * pairs;
  return 1.0 - used / (pairs * static_cast<double>(length() - 1));
}

void PairDataset::set_references(std::vector<float> log_probabilities) {
  if (log_probabilities.size() != references_.size())
    throw std::logic_error("a data set of other pairs than the log-probabilities are of");
  references_ = std::move(log_probabilities);
  hdf5::Checksum checksum;
  checksum.add(references_.data(),
               static_cast<std::int64_t>(references_.size() * sizeof references_[0]));
  references_checksum_ = checksum.hex();
}

std::unique_ptr<Dataset> open_pairs(TokenFile file, Split split, std::int64_t sequence_length,
                                    std::uint64_t seed) {
  return std::make_unique<PairDataset>(std::move(file), split, sequence_length, seed);
}

}  // namespace ostrakon::data
