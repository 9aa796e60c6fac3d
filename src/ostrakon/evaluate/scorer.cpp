// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/evaluate/scorer.hpp>

#include <algorithm>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/evaluate/windows.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <ostrakon/math/exact_sum.hpp>

namespace ostrakon::evaluate {
namespace {

/// A window and the sequence that it is of.
struct Place {
  std::int64_t sequence;
  Window window;
};

std::vector<Place> places_of(const Sequences& sequences, const WindowSettings& cut) {
  std::vector<Place> all;
  for (std::int64_t s = 0; s < sequences.count(); ++s)
    for (const Window& one :
         windows(sequences.length(s), sequences.first(s), cut.context, cut.stride))
      all.push_back({s, one});
  return all;
}

/// The windows as samples. Behind the tokens of a short one, and in samples behind the last, is
/// token 0, which nothing that counts is predicted from.
class Samples final : public data::Dataset {
 public:
  Samples(const Sequences& sequences, const std::vector<Place>& places, std::int64_t context)
      : Dataset(context + 1), sequences_(sequences), places_(places) {}

  std::uint64_t samples() const override { return places_.size(); }
  void read(std::uint64_t index, std::int32_t* tokens) override {
    counts_.assign(static_cast<std::size_t>(length()), 0);
    std::int64_t count = 0;
    if (index < places_.size()) {
      const auto& [sequence, window] = places_[static_cast<std::size_t>(index)];
      count = window.end - window.begin;
      sequences_.read(sequence, window.begin, count, tokens, counts_.data());
      std::fill_n(counts_.begin(), window.first - window.begin, std::uint8_t{0});
    }
    std::fill(tokens + count, tokens + length(), 0);
  }
  void read_rows(std::uint64_t index, const data::SampleRows& rows) override {
    Dataset::read_rows(index, rows);
    for (std::int64_t i = 0; i + 1 < length(); ++i)
      if (counts_[static_cast<std::size_t>(i + 1)] == 0) rows.targets[i] = data::not_counted;
  }
  /// For each token of a sample whether it counts.
  const std::vector<std::uint8_t>& counts_of(std::uint64_t index) {
    tokens_.resize(static_cast<std::size_t>(length()));
    read(index, tokens_.data());
    return counts_;
  }

 private:
  const Sequences& sequences_;
  const std::vector<Place>& places_;
  std::vector<std::uint8_t> counts_;  ///< of the sample that was read last
  std::vector<std::int32_t> tokens_;
};

/// Where Trainer::losses has the losses of a sample of its batch.
class Order {
 public:
  Order(const train::Trainer& trainer, std::int64_t context)
      : micro_batch_(trainer.settings().micro_batch_size),
        sequence_{context, trainer.model().context_ranks(), trainer.model().pieces()} {}

  /// body(position, index) for the places of a sample, in another order than that of positions
  /// where samples are cut.
  template <class Body>
  void for_each(std::int64_t sample, const Body& body) const {
    const std::int64_t tokens = sequence_.part_tokens();
    for (std::int64_t part = 0; part < sequence_.parts; ++part) {
      const std::int64_t leaf = sample / micro_batch_ * sequence_.parts + part;
      const std::int64_t first = (leaf * micro_batch_ + sample % micro_batch_) * tokens;
      for (std::int64_t r = 0; r < sequence_.runs(); ++r) {
        const math::TokenRun run = sequence_.run(part, r);
        for (std::int64_t i = 0; i < run.count; ++i)
          body(run.position + i, static_cast<std::size_t>(first + run.row + i));
      }
    }
  }

 private:
  std::int64_t micro_batch_;
  math::SequenceParts sequence_;
};

/// The exact sum of one sequence after the other.
class Sums {
 public:
  void add(float loss) { math::exact_sum_add(host_view(limbs_), loss); }
  /// Returns the sum, and begins the next.
  double take() {
    const double sum = math::exact_sum_value(host_view(std::as_const(limbs_)));
    std::fill(limbs_.begin(), limbs_.end(), 0);
    return sum;
  }

 private:
  std::vector<std::int64_t> limbs_ = std::vector<std::int64_t>(math::exact_sum_limbs);
};

}  // namespace

std::vector<Score> score(train::Trainer& trainer, const Sequences& sequences,
                         const WindowSettings& cut) {
  const std::vector<Place> places = places_of(sequences, cut);
  Samples samples(sequences, places, cut.context);
  const Order order(trainer, cut.context);
  const auto batch = static_cast<std::size_t>(trainer.settings().global_batch_size);
  const bool has_margins = trainer.model().loss_terms().tells_margins;
  std::vector<Score> scores(static_cast<std::size_t>(sequences.count()));
  Sums sum;
  for (std::size_t begin = 0; begin < places.size(); begin += batch) {
    const std::vector<float> losses = trainer.losses(samples, begin);
    const std::size_t terms = has_margins ? losses.size() / 2 : losses.size();
    for (std::size_t p = begin; p < std::min(places.size(), begin + batch); ++p) {
      Score& of = scores[static_cast<std::size_t>(places[p].sequence)];
      const std::vector<std::uint8_t>& counts = samples.counts_of(p);
      order.for_each(static_cast<std::int64_t>(p - begin), [&](std::int64_t at, std::size_t i) {
        if (counts[static_cast<std::size_t>(at + 1)] == 0) return;
        sum.add(losses[i]);
        ++of.tokens;
        if (has_margins && losses[terms + i] < 0.0F) of.is_greedy = false;
      });
      const bool is_last = p + 1 == places.size() || places[p + 1].sequence != places[p].sequence;
      if (is_last) of.log_probability = -sum.take();
    }
  }
  return scores;
}

}  // namespace ostrakon::evaluate
