// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/data/token_file.hpp>
#include <vector>

namespace ostrakon::evaluate {

/// Sequences of tokens that are evaluated by themselves: of each, the tokens from first() on are
/// predicted from those before them.
class Sequences {
 public:
  virtual ~Sequences() = default;

  virtual std::int64_t count() const = 0;
  /// Tokens of a sequence.
  virtual std::int64_t length(std::int64_t sequence) const = 0;
  /// The first token that is predicted, at least 1.
  virtual std::int64_t first(std::int64_t sequence) const = 0;
  /// Writes tokens [begin, begin + count) of a sequence, and for each of them whether predicting it
  /// counts, 0 or 1. Throws Error where they can't be read.
  virtual void read(std::int64_t sequence, std::int64_t begin, std::int64_t count,
                    std::int32_t* tokens, std::uint8_t* counts) const = 0;
};

/// A sequence in memory.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::int64_t first = 1;
};

/// Sequences in memory, of which all tokens count.
class SequencesInMemory final : public Sequences {
 public:
  explicit SequencesInMemory(std::vector<Sequence> all) : all_(std::move(all)) {}

  std::int64_t count() const override { return static_cast<std::int64_t>(all_.size()); }
  std::int64_t length(std::int64_t sequence) const override {
    return static_cast<std::int64_t>(at(sequence).tokens.size());
  }
  std::int64_t first(std::int64_t sequence) const override { return at(sequence).first; }
  void read(std::int64_t sequence, std::int64_t begin, std::int64_t count, std::int32_t* tokens,
            std::uint8_t* counts) const override;

 private:
  const Sequence& at(std::int64_t sequence) const {
    return all_[static_cast<std::size_t>(sequence)];
  }

  std::vector<Sequence> all_;
};

/// Gives all ranks the sequences of rank 0. Collective.
void share(comm::Communicator& world, std::vector<Sequence>& sequences);

/// The tokens of a token file as one sequence, as training reads them: all but the first token are
/// predicted, those that the file says count.
class SequenceOfFile final : public Sequences {
 public:
  explicit SequenceOfFile(const data::TokenFile& file) : file_(file) {}

  std::int64_t count() const override { return 1; }
  std::int64_t length(std::int64_t) const override { return file_.info().token_count; }
  std::int64_t first(std::int64_t) const override { return 1; }
  void read(std::int64_t sequence, std::int64_t begin, std::int64_t count, std::int32_t* tokens,
            std::uint8_t* counts) const override;

 private:
  const data::TokenFile& file_;
};

}  // namespace ostrakon::evaluate
