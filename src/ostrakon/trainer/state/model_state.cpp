// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/state/model_state.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/digest.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/math/warm_up.hpp>

namespace ostrakon::train {

namespace {

/// Fills `values`, elements from `first` on of an array with the slice.
void make_initial_values(const Exec& exec, const ParameterSlice& slice, std::int64_t first,
                         std::uint64_t seed, View<float*> values) {
  const model::Parameter& parameter = *slice.parameter;
  if (parameter.initializer == model::Initializer::zeros) return math::fill(exec, values, 0.0f);
  if (parameter.initializer == model::Initializer::ones) return math::fill(exec, values, 1.0f);
  const std::uint64_t key = math::random_key(seed, parameter.full_name());
  std::int64_t done = 0;
  slice.elements.range(first - slice.offset, values.size())
      .for_each([&](std::int64_t element, std::int64_t run) {
        const View<float*> some = values.range(done, done + run);
        if (parameter.initializer == model::Initializer::normal)
          math::fill_normal(exec, some, key, element, parameter.deviation);
        else if (parameter.initializer == model::Initializer::uniform)
          math::fill_uniform(exec, some, key, element, parameter.deviation);
        else
          math::fill_log_uniform(exec, some, key, element, 0.01, 16.0);
        done += run;
      });
}

}  // namespace

void make_initial_values(const Exec& exec, const std::vector<ParameterSlice>& slices,
                         std::int64_t begin, std::uint64_t seed, View<float*> values) {
  math::fill(exec, values, 0.0f);
  for (const ParameterSlice& slice : slices) {
    const std::int64_t first = std::max(slice.offset, begin);
    const std::int64_t end = std::min(slice.offset + slice.count, begin + values.size());
    if (first < end)
      make_initial_values(exec, slice, first, seed, values.range(first - begin, end - begin));
  }
}

void read_values(const Exec& exec, const std::vector<ParameterSlice>& slices, std::int64_t begin,
                 checkpoint::ParameterSource& weights, std::uint64_t seed, View<float*> values) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  const std::int64_t count = values.size();
  std::vector<float> read;
  math::fill(exec, values, 0.0f);
  for (const ParameterSlice& slice : slices) {
    const model::Parameter& parameter = *slice.parameter;
    const std::int64_t start = std::max(slice.offset, begin);
    const std::int64_t end = std::min(slice.offset + slice.count, begin + count);
    if (start < end && !weights.contains(parameter.owner, parameter.name)) {
      make_initial_values(exec, slice, start, seed, values.range(start - begin, end - begin));
      continue;
    }
    for (std::int64_t first = start; first < end; first += most) {
      const std::int64_t some = std::min(most, end - first);
      read.resize(static_cast<std::size_t>(some));
      float* to = read.data();
      slice.elements.range(first - slice.offset, some)
          .for_each([&](std::int64_t element, std::int64_t run) {
            weights.read(parameter.owner, parameter.name, parameter.shape, element, run, to);
            to += run;
          });
      math::copy_to_device(exec, host_view(read),
                           values.range(first - begin, first - begin + some));
    }
  }
}

ModelState::ModelState(const Programs& programs, const ShardLayout& layout, const Options& options,
                       mesh::Mesh& mesh)
    : plan_(programs.train.plan),
      layout_(layout),
      mesh_(mesh),
      moments_(options.moments),
      seed_(options.seed),
      memory_(programs, options.pinned_host_memory) {
  note_saved_bytes();
}

void ModelState::warm_up() {
  math::warm_up(exec_);
  const auto digest = memory_.view<std::uint64_t, OnDevice>(plan_.sums).range(0, 1);
  math::clear(exec_, digest);
  memory_.in_chunks(1, [&](std::int64_t, std::int64_t count) {
    const View<float*> value = memory_.scratch().range(0, count);
    math::fill(exec_, value, 0.0f);
    math::fill_normal(exec_, value, 0, 0, 1.0);
    for (const Kind& kind : kinds())
      for (const plan::PlannedUnit& unit : plan_.units) {
        const int buffer = unit.*kind.which;
        if (buffer < 0 || plan_.buffers[static_cast<std::size_t>(buffer)].bytes == 0) continue;
        memory_.store(kind.dtype, value, buffer, 0);
        const View<const float*> fetched = memory_.fetch(kind.dtype, buffer, 0, count);
        math::copy<float>(exec_, fetched, value);
        math::add_digest(exec_, fetched, 0, 0, digest);
        break;
      }
  });
  exec_.fence();
}

/// Initializes the parameters of a unit in a buffer.
void ModelState::initialize(int buffer, DType dtype, checkpoint::ParameterSource* weights) {
  const plan::Buffer& target = plan_.buffers[buffer];
  for (int flat = target.flats.first; flat < target.flats.end; ++flat) {
    const std::vector<ParameterSlice> slices = layout_.slices_of_part(flat, target.divided);
    const std::int64_t offset = layout_.offset_in(buffer, flat, target.divided);
    memory_.in_chunks(plan_.elements({flat, flat + 1}, target.divided),
                      [&](std::int64_t begin, std::int64_t count) {
                        const View<float*> values = memory_.scratch().range(0, count);
                        if (weights != nullptr)
                          read_values(exec_, slices, begin, *weights, seed_, values);
                        else
                          make_initial_values(exec_, slices, begin, seed_, values);
                        memory_.store(dtype, values, buffer, offset + begin);
                      });
  }
}

void ModelState::initialize(checkpoint::ParameterSource* weights) {
  has_values_ = false;
  mesh_.world().run_collectively([&] {
    for (const plan::PlannedUnit& unit : plan_.units) {
      if (unit.masters >= 0) initialize(unit.masters, DType::fp32, weights);
      if (unit.compute_copy >= 0) initialize(unit.compute_copy, copy_dtype(), weights);
      if (unit.averages >= 0) initialize(unit.averages, DType::fp32, weights);
      for (int moments : {unit.first_moments, unit.second_moments})
        if (moments >= 0) memory_.clear(moments);
    }
    exec_.fence();
  });
  has_values_ = true;
}

std::array<ModelState::Kind, 5> ModelState::kinds() const {
  using plan::PlannedUnit;
  return {{{"parameters", &PlannedUnit::masters, DType::fp32, true},
           {"first moment", &PlannedUnit::first_moments, moments_, true},
           {"second moment", &PlannedUnit::second_moments, moments_, true},
           {"average", &PlannedUnit::averages, DType::fp32, true},
           {"compute copies", &PlannedUnit::compute_copy, copy_dtype(), false}}};
}

/// Returns the digest of one kind of state, which a member of PlannedUnit names, for units with
/// `parts` parts: of the rank's part of them as divided over `counted`.
std::uint64_t ModelState::digest_of(const char* what, int plan::PlannedUnit::*which, DType dtype,
                                    int parts, const plan::Spans& counted) {
  const auto digest = memory_.view<std::uint64_t, OnDevice>(plan_.sums).range(0, 1);
  math::clear(exec_, digest);
  for (const plan::PlannedUnit& unit : plan_.units) {
    if (unit.layouts.expert_ranks != parts) continue;
    const int buffer = unit.*which;
    for (const ParameterSlice& slice : layout_.slices_in_buffer(buffer, counted)) {
      const std::uint64_t key = math::random_key(0, slice.parameter->full_name() + " " + what);
      memory_.in_chunks(slice.count, [&](std::int64_t begin, std::int64_t count) {
        const auto values = memory_.fetch(dtype, buffer, slice.offset + begin, count);
        std::int64_t done = 0;
        slice.elements.range(begin, count).for_each([&](std::int64_t element, std::int64_t run) {
          math::add_digest(exec_, values.range(done, done + run), key, element, digest);
          done += run;
        });
      });
    }
  }
  std::uint64_t value = 0;
  math::copy_to_host(exec_, digest, HostView<std::uint64_t*>(&value, 1));
  return value;
}

/// Returns "" if this rank's digest equals that of all ranks with the same part; otherwise which
/// ranks differ, and how.
std::string ModelState::difference(const char* what, std::uint64_t mine,
                                   const plan::Spans& stored) {
  int part = 0;
  for (const plan::Span& span : stored)
    part = part * span.ranks + plan_.grid.coordinate(layout_.rank(), span);
  comm::Communicator group = comm::Communicator::split(mesh_.stage().mpi(), part);
  std::uint64_t first = mine;
  group.broadcast(&first, sizeof first, 0);
  if (mine == first) return "";
  return text("rank ", mesh_.world().rank(), " holds other ", what, " than its replicas (digest ",
              format_hex(mine), ", not ", format_hex(first), ")");
}

std::uint64_t ModelState::digest() {
  using plan::PlannedUnit;
  // Units with equally many parts are divided alike.
  std::map<int, const PlannedUnit*> tables;
  for (const PlannedUnit& unit : plan_.units) tables.try_emplace(unit.layouts.expert_ranks, &unit);
  std::uint64_t total = 0;
  std::string wrong;
  for (const auto& [parts, first] : tables) {
    const plan::Spans& all_ranks = first->layouts.gradient.divided;
    for (const Kind& kind : kinds()) {
      const auto any = std::find_if(
          plan_.units.begin(), plan_.units.end(), [&, p = parts](const PlannedUnit& unit) {
            return unit.layouts.expert_ranks == p && unit.*kind.which >= 0;
          });
      if (any == plan_.units.end()) continue;  // no unit has it, on any rank of the stage
      // Each element is counted once over all ranks.
      if (kind.counts) total += digest_of(kind.name, kind.which, kind.dtype, parts, all_ranks);
      const plan::Spans& stored = plan_.buffers[(*any).*kind.which].divided;
      if (stored == all_ranks) continue;
      // Ranks that store the same part must have the same bits.
      const std::uint64_t mine = digest_of(kind.name, kind.which, kind.dtype, parts, stored);
      const std::string differs = difference(kind.name, mine, stored);
      if (wrong.empty()) wrong = differs;
    }
  }
  mesh_.world().run_collectively([&] { require(wrong.empty(), wrong); });
  mesh_.world().all_reduce_sum(&total, 1);
  return total;
}

}  // namespace ostrakon::train
