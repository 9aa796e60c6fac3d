// SPDX-License-Identifier: Apache-2.0
// What the trainer keeps from step to step: its first values, and its digest.
#include <algorithm>
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/digest.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/train/numbers.hpp>
#include <ostrakon/train/trainer.hpp>
#include <stdexcept>

namespace ostrakon::train {

using checkpoint::State;
using plan::Space;

/// Calls work(begin, count) for stretches of so many elements that scratch_ holds them twice.
template <class Work>
void Trainer::in_chunks(std::int64_t count, const Work& work) const {
  if (chunk_ <= 0) throw std::logic_error("the arena has no room to pass values on");
  for (std::int64_t begin = 0; begin < count; begin += chunk_)
    work(begin, std::min(chunk_, count - begin));
}

/// Puts values, in device memory, into a buffer of numbers T, from its element `first` on. The
/// second half of scratch_ is used.
template <class T>
void Trainer::store(const float* values, int buffer, std::int64_t first, std::int64_t count) {
  T* const target = state<T>(buffer) + first;
  if (train_.plan.buffers[buffer].space == Space::device)
    return math::convert(exec_, values, target, count);
  T* const converted = reinterpret_cast<T*>(scratch_ + chunk_);
  math::convert(exec_, values, converted, count);
  math::copy_to_host(exec_, converted, target, static_cast<std::size_t>(count));
}

/// The other way: into the first half of scratch_, unless they are there for kernels as they are.
template <class T>
const float* Trainer::fetch(int buffer, std::int64_t first, std::int64_t count) {
  const T* values = state<T>(buffer) + first;
  if (train_.plan.buffers[buffer].space == Space::host) {
    T* const copied = reinterpret_cast<T*>(scratch_ + chunk_);
    math::copy_to_device(exec_, values, copied, static_cast<std::size_t>(count));
    values = copied;
  }
  if constexpr (std::is_same<T, float>::value) {
    return values;
  } else {
    math::convert(exec_, values, scratch_, count);
    return scratch_;
  }
}

/// Fills a buffer with zeros.
void Trainer::clear(int buffer) {
  const auto bytes = static_cast<std::size_t>(train_.plan.buffers[buffer].bytes);
  if (train_.plan.buffers[buffer].space == Space::host)
    std::memset(state<char>(buffer), 0, bytes);
  else
    Kokkos::deep_copy(exec_, math::UnmanagedArray<char, Memory>(state<char>(buffer), bytes),
                      char{0});
}

/// Elements [begin, begin + count) of a part of a flat parameter which has these of each parameter,
/// with zeros in the gaps.
void Trainer::make_initial_values(const std::vector<Piece>& parameters, std::int64_t begin,
                                  std::int64_t count, float* values) {
  math::fill(exec_, values, count, 0.0f);
  for (const Piece& piece : parameters) {
    const std::int64_t first = std::max(piece.offset, begin);
    const std::int64_t some = std::min(piece.offset + piece.count, begin + count) - first;
    if (some <= 0) continue;
    float* const at = values + (first - begin);
    switch (piece.parameter->initializer) {
      case model::Initializer::zeros:
        break;
      case model::Initializer::ones:
        math::fill(exec_, at, some, 1.0f);
        break;
      case model::Initializer::normal:
        math::fill_normal(exec_, at, some,
                          math::random_key(settings_.training.seed, piece.parameter->full_name()),
                          piece.first + (first - piece.offset), piece.parameter->deviation);
        break;
    }
  }
}

/// The same, as somebody else left them.
void Trainer::read_values(const std::vector<Piece>& parameters, std::int64_t begin,
                          std::int64_t count, checkpoint::ParameterSource& weights, float* values) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::vector<float> read(static_cast<std::size_t>(std::min(count, most)));
  math::fill(exec_, values, count, 0.0f);
  for (const Piece& piece : parameters) {
    const model::Parameter& parameter = *piece.parameter;
    const std::int64_t end = std::min(piece.offset + piece.count, begin + count);
    for (std::int64_t first = std::max(piece.offset, begin); first < end; first += most) {
      const std::int64_t some = std::min(most, end - first);
      weights.read(parameter.owner, parameter.name, parameter.shape,
                   piece.first + (first - piece.offset), some, read.data());
      math::copy_to_device(exec_, read.data(), values + (first - begin),
                           static_cast<std::size_t>(some));
    }
  }
}

/// What a buffer has of a unit's parameters.
void Trainer::initialize(int buffer, Number number, checkpoint::ParameterSource* weights) {
  const plan::StepPlan& plan = train_.plan;
  const plan::Buffer& target = plan.buffers[buffer];
  for (int flat = target.flats.first; flat < target.flats.end; ++flat) {
    const std::vector<Piece> parameters = pieces(flat, target.divided);
    const std::int64_t offset = plan.offset_in(target, flat, target.divided, rank_);
    in_chunks(plan.elements({flat, flat + 1}, target.divided),
              [&](std::int64_t begin, std::int64_t count) {
                if (weights != nullptr)
                  read_values(parameters, begin, count, *weights, scratch_);
                else
                  make_initial_values(parameters, begin, count, scratch_);
                with_number(number, [&](auto one) {
                  store<decltype(one)>(scratch_, buffer, offset + begin, count);
                });
              });
  }
}

void Trainer::initialize(checkpoint::ParameterSource* weights) {
  const plan::StepPlan& plan = train_.plan;
  mesh_.world().agree([&] {
    for (const plan::PlannedUnit& unit : plan.units) {
      initialize(unit.masters, Number::fp32, weights);
      if (unit.working >= 0) initialize(unit.working, decoder_->number(), weights);
      for (int moments : {unit.first_moments, unit.second_moments})
        if (moments >= 0) clear(moments);
    }
    exec_.fence();
  });
}

/// Copies to compute with, of masters where they have all that is needed.
void Trainer::restore_working(int unit, checkpoint::CheckpointReader& checkpoint) {
  const plan::StepPlan& plan = train_.plan;
  const int working = plan.units[unit].working, masters = plan.units[unit].masters;
  const plan::Buffer& target = plan.buffers[working];
  if (target.divided != plan.buffers[masters].divided)
    return initialize(working, decoder_->number(), &checkpoint);
  in_chunks(plan.elements(target.flats, target.divided),
            [&](std::int64_t begin, std::int64_t count) {
              // Both fetch and store may use the second half of scratch_.
              const float* const values = fetch<float>(masters, begin, count);
              const auto some = static_cast<std::size_t>(count);
              Kokkos::deep_copy(exec_, math::UnmanagedArray<float, Memory>(scratch_, some),
                                math::UnmanagedArray<const float, Memory>(values, some));
              with_number(decoder_->number(),
                          [&](auto one) { store<decltype(one)>(scratch_, working, begin, count); });
            });
}

Trainer::StateBuffer Trainer::member_of(State state) {
  return state == State::parameters     ? &plan::PlannedUnit::masters
         : state == State::first_moment ? &plan::PlannedUnit::first_moments
                                        : &plan::PlannedUnit::second_moments;
}

Number Trainer::number_of(State state) const {
  return state == State::parameters ? Number::fp32 : settings_.parallel.moments.number;
}

/// What this rank's part of a unit has in its buffer, which holds that part or more.
std::vector<Trainer::StatePiece> Trainer::state_pieces(int unit, StateBuffer which,
                                                       const plan::Spans& divided) const {
  std::vector<StatePiece> found;
  const int index = train_.plan.units[unit].*which;
  if (index < 0) return found;
  const plan::Buffer& buffer = train_.plan.buffers[index];
  const bool packed = which == &plan::PlannedUnit::second_moments;
  for (int flat = buffer.flats.first; flat < buffer.flats.end; ++flat) {
    for (const Piece& piece : pieces(flat, divided)) {
      std::int64_t offset = train_.plan.offset_in(buffer, flat, divided, rank_) + piece.offset;
      if (packed) {
        // A matrix that is updated as a whole has none.
        if (optim::rule_of(settings_.optimizer, *piece.parameter) == optim::OptimizerKind::muon)
          continue;
        offset -= whole_matrices_before(unit, offset);
      }
      found.push_back({piece.parameter, piece.first, offset, piece.count});
    }
  }
  return found;
}

/// Digest of one kind of state, of the part that `counted` says.
std::uint64_t Trainer::digest_of(const char* what, StateBuffer which, Number number,
                                 const plan::Spans& counted) {
  const plan::StepPlan& plan = train_.plan;
  auto* digest = state<std::uint64_t>(plan.sums);
  Kokkos::deep_copy(exec_, math::UnmanagedArray<std::uint64_t, Memory>(digest, 1),
                    std::uint64_t{0});
  for (int u = 0; u < decoder_->units(); ++u) {
    const int buffer = plan.units[u].*which;
    for (const StatePiece& piece : state_pieces(u, which, counted)) {
      const std::uint64_t key = math::random_key(0, piece.parameter->full_name() + " " + what);
      in_chunks(piece.count, [&](std::int64_t begin, std::int64_t count) {
        with_number(number, [&](auto one) {
          math::add_digest(exec_, fetch<decltype(one)>(buffer, piece.offset + begin, count), count,
                           key, piece.first + begin, digest);
        });
      });
    }
  }
  std::uint64_t value = 0;
  math::copy_to_host(exec_, digest, &value, 1);
  return value;
}

/// Throws AgreedError unless all ranks of `group` have the same digest of what they all hold.
void Trainer::require_alike(const char* what, std::uint64_t mine, comm::Communicator& group) {
  std::uint64_t first = mine;
  group.broadcast(&first, sizeof first, 0);
  mesh_.world().agree([&] {
    require(mine == first, "rank ", mesh_.world().rank(), " holds other ", what,
            " than its replicas (digest ", format_hex(mine), ", not ", format_hex(first), ")");
  });
}

std::uint64_t Trainer::state_digest() {
  const plan::StepPlan& plan = train_.plan;
  struct Kind {
    const char* name;
    StateBuffer which;
    Number number;
    bool counts;  ///< copies to compute with say nothing new, but must be alike
  };
  const Number moments = settings_.parallel.moments.number;
  using plan::PlannedUnit;
  const Kind kinds[] = {{"parameters", &PlannedUnit::masters, Number::fp32, true},
                        {"first moment", &PlannedUnit::first_moments, moments, true},
                        {"second moment", &PlannedUnit::second_moments, moments, true},
                        {"working copies", &PlannedUnit::working, decoder_->number(), false}};
  const plan::Spans& all_ranks = plan.layouts.gradient.divided;
  std::uint64_t total = 0;
  for (const Kind& state : kinds) {
    const auto any = std::find_if(plan.units.begin(), plan.units.end(),
                                  [&](const auto& unit) { return unit.*state.which >= 0; });
    if (any == plan.units.end()) continue;
    // Each element is counted once over all ranks.
    if (state.counts) total += digest_of(state.name, state.which, state.number, all_ranks);
    const plan::Spans& stored = plan.buffers[(*any).*state.which].divided;
    if (stored == all_ranks) continue;
    // Whoever stores the same must have the same bits.
    const std::uint64_t mine = digest_of(state.name, state.which, state.number, stored);
    require_alike(state.name, mine, stored.empty() ? mesh_.world() : mesh_.replicate_group());
  }
  mesh_.world().sum(&total, 1);
  return total;
}

}  // namespace ostrakon::train
