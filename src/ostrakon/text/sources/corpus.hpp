// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/text/sources/token_store.hpp>

namespace ostrakon::texts {

struct CorpusSettings {
  ReadSettings read;
  EncodeSettings encode;
  int workers = 1;
  std::int64_t most_bad = 0;  ///< records that may be passed over
  double commit_seconds = 5.0;
};

/// What is told after each portion.
struct Progress {
  const BuildState& state;
  std::int64_t taken = 0;       ///< bytes of files that were read
  std::int64_t text_bytes = 0;  ///< read since this process began
};

/// Reads what is left of the sources into a store and completes it: one thread reads, `workers`
/// threads make ids, and the caller's thread writes. The content of the store does not depend on
/// their number, nor on how often this was ended and began again. Throws Error, also for the first
/// bad record beyond `most_bad`. `tell_bad`: gets what is wrong with each record that is passed
/// over.
void encode_corpus(const CorpusSettings& settings, const Tokenizer& tokenizer, TokenStore& store,
                   const std::function<void(const Progress&)>& tell,
                   const std::function<void(const std::string&)>& tell_bad);

/// Splits documents into training and validation by a hash of the seed and the number of each. If
/// one side would get no document, it gets the one with the nearest hash.
class DocumentSplit {
 public:
  /// `fraction`: share of validation, in [0, 1); 0: no validation.
  DocumentSplit(std::uint64_t seed, double fraction, std::int64_t documents);
  bool is_validation(std::int64_t document) const;

 private:
  std::uint64_t hash(std::int64_t document) const;

  std::uint64_t key_;
  bool validates_;
  std::uint64_t limit_;
};

}  // namespace ostrakon::texts
