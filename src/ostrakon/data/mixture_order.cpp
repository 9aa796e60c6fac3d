// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/mixture_order.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/data/data_settings.hpp>
#include <ostrakon/data/random_integer.hpp>
#include <ostrakon/data/sample_order.hpp>
#include <string>
#include <utility>

namespace ostrakon::data {
namespace {

/// Sums of weights are rounded to multiples of 2^-share_bits of the whole, so that all arithmetic
/// is of integers, and the same on any machine.
constexpr int share_bits = 32;
constexpr int least_block_bits = 12, most_block_bits = 20;
static_assert(least_share >= 1.0 / (1 << most_block_bits));

constexpr const char* phase_name = "mixture from sample ";
constexpr const char* taken_name = "mixture before sample ";

std::string list_text(const std::vector<std::uint64_t>& numbers) {
  std::string all;
  for (const std::uint64_t number : numbers) all += " " + std::to_string(number);
  return all;
}

/// Reads numbers up to what is none.
template <class Number>
std::vector<Number> read_list(TextReader& reader) {
  std::vector<Number> numbers;
  for (Number number{}; reader >> number;) numbers.push_back(number);
  reader.clear();
  return numbers;
}

[[noreturn]] void refuse(const Fact& fact) {
  throw Error(text("what it says of its data can't be read: ", fact.name, ": \"", fact.value,
                   "\"; expected \"seed S; weights W W; taken N N\""));
}

bool begins_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

std::uint64_t number_behind(const Fact& fact, const std::string& start) {
  TextReader reader(fact.name.substr(start.size()));
  std::uint64_t number = 0;
  if (!(reader >> number) || !(reader >> std::ws).eof()) refuse(fact);
  return number;
}

/// Returns the bits of the size of a block in which each source has a sample.
int block_bits(const std::vector<std::uint64_t>& shares) {
  int bits = least_block_bits;
  for (std::size_t k = 1; k < shares.size(); ++k) {
    const std::uint64_t share = shares[k] - shares[k - 1];
    while (share > 0 && bits < most_block_bits && (share >> (share_bits - bits)) == 0) ++bits;
  }
  return bits;
}

/// Returns floor(blocks 2^bits share / 2^share_bits), without overflow.
std::uint64_t share_of(std::uint64_t blocks, int bits, std::uint64_t share) {
  const int shift = share_bits - bits;
  const std::uint64_t low = blocks & ((std::uint64_t{1} << shift) - 1);
  return (blocks >> shift) * share + (low * share >> shift);
}

}  // namespace

MixtureOrder::MixtureOrder(std::uint64_t seed, const std::vector<double>& weights)
    : phases_({{0, seed, weights, std::vector<std::uint64_t>(weights.size(), 0)}}) {}

/// Returns the shares of the first 0, 1, 2, ... sources together, in units of 2^-share_bits.
std::vector<std::uint64_t> MixtureOrder::shares(const Phase& phase) {
  const double sum = std::accumulate(phase.weights.begin(), phase.weights.end(), 0.0);
  std::vector<std::uint64_t> shares = {0};
  double before = 0.0;
  for (const double weight : phase.weights) {
    before += weight;
    shares.push_back(
        static_cast<std::uint64_t>(std::llround(std::ldexp(before / sum, share_bits))));
  }
  return shares;
}

const MixtureOrder::Phase& MixtureOrder::phase_of(std::uint64_t sample) const {
  const auto next =
      std::upper_bound(phases_.begin(), phases_.end(), sample,
                       [](std::uint64_t at, const Phase& phase) { return at < phase.first; });
  return *std::prev(next);
}

const MixtureOrder::Block& MixtureOrder::block_of(std::uint64_t sample) {
  const Phase& phase = phase_of(sample);
  if (block_.phase == &phase && sample - block_.begin < block_.drawn.size()) return block_;
  const std::vector<std::uint64_t> all = shares(phase);
  const int bits = block_bits(all);
  const std::uint64_t size = std::uint64_t{1} << bits;
  const std::uint64_t blocks = (sample - phase.first) >> bits;
  const std::uint64_t begin = phase.first + (blocks << bits);

  // Ends of the sources in a block before it is shuffled, and the next sample of each source.
  std::vector<std::uint64_t> ends, next;
  std::uint64_t end = 0;
  for (std::size_t k = 0; k + 1 < all.size(); ++k) {
    const auto drawn = [&](std::uint64_t after) {
      return share_of(after, bits, all[k + 1]) - share_of(after, bits, all[k]);
    };
    end += drawn(blocks + 1) - drawn(blocks);
    ends.push_back(end);
    next.push_back(phase.taken[k] + drawn(blocks));
  }
  const Permutation order(size, random_integer(math::random_key(phase.seed, "mixture"), begin, 0));
  block_ = {&phase, begin, {}};
  block_.drawn.reserve(size);
  for (std::uint64_t i = 0; i < size; ++i) {
    const auto source = static_cast<std::size_t>(
        std::upper_bound(ends.begin(), ends.end(), order(i)) - ends.begin());
    block_.drawn.push_back({source, next[source]++});
  }
  return block_;
}

MixtureOrder::Drawn MixtureOrder::draw(std::uint64_t sample) {
  const Block& block = block_of(sample);
  return block.drawn[sample - block.begin];
}

std::vector<std::uint64_t> MixtureOrder::taken(std::uint64_t samples) {
  const Block& block = block_of(samples);
  std::vector<std::uint64_t> taken = block.phase->taken;
  const std::vector<std::uint64_t> all = shares(*block.phase);
  const int bits = block_bits(all);
  const std::uint64_t blocks = (block.begin - block.phase->first) >> bits;
  for (std::size_t k = 0; k < taken.size(); ++k)
    taken[k] += share_of(blocks, bits, all[k + 1]) - share_of(blocks, bits, all[k]);
  for (std::uint64_t i = 0; i < samples - block.begin; ++i) ++taken[block.drawn[i].source];
  taken.resize(std::max(taken.size(), phases_.back().taken.size()), 0);
  return taken;
}

Facts MixtureOrder::facts(std::uint64_t samples) {
  Facts facts;
  for (const Phase& phase : phases_) {
    std::string weights;
    for (const double weight : phase.weights) weights += " " + write_number(weight);
    facts.push_back(
        {phase_name + std::to_string(phase.first),
         text("seed ", phase.seed, "; weights", weights, "; taken", list_text(phase.taken))});
  }
  facts.push_back({taken_name + std::to_string(samples), "taken" + list_text(taken(samples))});
  return facts;
}

MixtureOrder::Phase MixtureOrder::read_phase(const Fact& fact) {
  Phase phase;
  phase.first = number_behind(fact, phase_name);
  TextReader reader(fact.value);
  std::string word;
  if (!(reader >> word) || word != "seed" || !(reader >> phase.seed >> word) || word != ";")
    refuse(fact);
  if (!(reader >> word) || word != "weights") refuse(fact);
  phase.weights = read_list<double>(reader);
  if (!(reader >> word) || word != ";" || !(reader >> word) || word != "taken") refuse(fact);
  phase.taken = read_list<std::uint64_t>(reader);
  // Files that are no longer in the list may have had some of the samples.
  const std::uint64_t all =
      std::accumulate(phase.taken.begin(), phase.taken.end(), std::uint64_t{0});
  if (!(reader >> std::ws).eof() || phase.weights.empty() || all > phase.first ||
      phase.taken.size() != phase.weights.size())
    refuse(fact);
  return phase;
}

void MixtureOrder::continue_from(std::uint64_t samples, const Facts& before) {
  Phase now = phases_.back();
  now.first = samples;
  std::vector<Phase> phases;
  std::vector<std::uint64_t> stored;
  for (const Fact& fact : before) {
    if (begins_with(fact.name, phase_name)) phases.push_back(read_phase(fact));
    if (!begins_with(fact.name, taken_name)) continue;
    TextReader reader(fact.value);
    std::string word;
    reader >> word;
    stored = read_list<std::uint64_t>(reader);
    if (number_behind(fact, taken_name) != samples || word != "taken") refuse(fact);
  }
  if (phases.empty()) {
    phases = {{0, now.seed, {1.0}, {0}}};
    stored = {samples};
  }
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const std::uint64_t least = i == 0 ? 0 : phases[i - 1].first + 1;
    const std::uint64_t most = i == 0 ? 0 : samples;
    require(phases[i].first >= least && phases[i].first <= most,
            "what it says of its data contradicts itself: weights hold from sample ",
            phases[i].first, " on; expected ", least, " to ", most);
  }
  phases_ = std::move(phases);
  block_ = {};
  const std::vector<std::uint64_t> found = taken(samples);
  require(found == stored, "its data were drawn in another order: of its ", samples,
          " samples it took", list_text(stored), " of the files; their weights give",
          list_text(found));
  block_ = {};
  if (phases_.back().seed == now.seed && phases_.back().weights == now.weights) return;
  stored.resize(now.weights.size(), 0);
  now.taken = stored;
  if (phases_.back().first == samples) phases_.pop_back();
  phases_.push_back(now);
}

}  // namespace ostrakon::data
