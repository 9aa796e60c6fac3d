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
using plan::Part;
using plan::Segment;
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

/// Elements [begin, begin + count) of a part of a segment which has these of each parameter, with
/// zeros in the gaps.
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
void Trainer::initialize(int unit, int buffer, Number number,
                         checkpoint::ParameterSource* weights) {
  const Part part = train_.plan.buffers[buffer].part;
  for (const Segment segment : {Segment::frozen, Segment::trained}) {
    const std::vector<Piece> parameters = pieces(unit, part, segment);
    const std::int64_t offset = offset_in(train_.plan.buffers[buffer], unit, part, segment);
    in_chunks(train_.plan.elements(unit, part, segment),
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
    for (int u = 0; u < decoder_->units(); ++u) {
      initialize(u, plan.parameters[u], Number::fp32, weights);
      if (!plan.working.empty()) initialize(u, plan.working[u], decoder_->number(), weights);
      for (const std::vector<int>* moments : {&plan.first_moments, &plan.second_moments})
        if (!moments->empty() && (*moments)[u] >= 0) clear((*moments)[u]);
    }
    exec_.fence();
  });
}

/// Copies to compute with, of masters where they have all that is needed.
void Trainer::restore_working(int unit, checkpoint::CheckpointReader& checkpoint) {
  const plan::StepPlan& plan = train_.plan;
  const int working = plan.working[unit], masters = plan.parameters[unit];
  if (plan.buffers[working].part != plan.buffers[masters].part)
    return initialize(unit, working, decoder_->number(), &checkpoint);
  in_chunks(plan.elements(unit, plan.buffers[working].part, Segment::both),
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

const std::vector<int>& Trainer::buffers_of(State state) const {
  const plan::StepPlan& plan = train_.plan;
  return state == State::parameters     ? plan.parameters
         : state == State::first_moment ? plan.first_moments
                                        : plan.second_moments;
}

Number Trainer::number_of(State state) const {
  return state == State::parameters ? Number::fp32 : settings_.parallel.moments.number;
}

/// What this rank's `part` of a unit has in its buffer, of `buffers`, which holds that part or
/// more.
std::vector<Trainer::StatePiece> Trainer::state_pieces(int unit, const std::vector<int>& buffers,
                                                       Part part) const {
  std::vector<StatePiece> found;
  if (buffers.empty() || buffers[unit] < 0) return found;
  const plan::Buffer& buffer = train_.plan.buffers[buffers[unit]];
  const bool packed = &buffers == &train_.plan.second_moments;
  for (const Segment segment : {Segment::frozen, Segment::trained}) {
    if (segment == Segment::frozen && buffer.segment == Segment::trained) continue;
    for (const Piece& piece : pieces(unit, part, segment)) {
      std::int64_t offset = offset_in(buffer, unit, part, segment) + piece.offset;
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

/// Digest of one kind of state, of what the buffers have of the `counted` part.
std::uint64_t Trainer::digest_of(const char* what, const std::vector<int>& buffers, Number number,
                                 Part counted) {
  const plan::StepPlan& plan = train_.plan;
  auto* digest = state<std::uint64_t>(plan.sums);
  Kokkos::deep_copy(exec_, math::UnmanagedArray<std::uint64_t, Memory>(digest, 1),
                    std::uint64_t{0});
  for (int u = 0; u < decoder_->units(); ++u) {
    for (const StatePiece& piece : state_pieces(u, buffers, counted)) {
      const std::uint64_t key = math::random_key(0, piece.parameter->full_name() + " " + what);
      in_chunks(piece.count, [&](std::int64_t begin, std::int64_t count) {
        with_number(number, [&](auto one) {
          math::add_digest(exec_, fetch<decltype(one)>(buffers[u], piece.offset + begin, count),
                           count, key, piece.first + begin, digest);
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
    const std::vector<int>& buffers;
    Number number;
    bool counts;  ///< copies to compute with say nothing new, but must be alike
  };
  const Number moments = settings_.parallel.moments.number;
  const Kind kinds[] = {{"parameters", plan.parameters, Number::fp32, true},
                        {"first moment", plan.first_moments, moments, true},
                        {"second moment", plan.second_moments, moments, true},
                        {"working copies", plan.working, decoder_->number(), false}};
  std::uint64_t total = 0;
  for (const Kind& state : kinds) {
    const auto any = std::find_if(state.buffers.begin(), state.buffers.end(),
                                  [](int buffer) { return buffer >= 0; });
    if (any == state.buffers.end()) continue;
    // Each element is counted once over all ranks.
    if (state.counts) total += digest_of(state.name, state.buffers, state.number, Part::rank);
    const Part stored = plan.buffers[*any].part;
    if (stored == Part::rank) continue;
    // Whoever stores the same must have the same bits.
    const std::uint64_t mine = digest_of(state.name, state.buffers, state.number, stored);
    require_alike(state.name, mine,
                  stored == Part::whole ? mesh_.world() : mesh_.replicate_group());
  }
  mesh_.world().sum(&total, 1);
  return total;
}

}  // namespace ostrakon::train
