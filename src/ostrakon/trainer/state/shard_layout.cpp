// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/state/shard_layout.hpp>

#include <algorithm>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/model/array_packer.hpp>

namespace ostrakon::train {
namespace {

/// Whether two ranges can be merged. Gaps between them hold zeros, which no update changes.
bool are_updated_alike(const UpdateRange& one, const UpdateRange& other) {
  return one.rule == other.rule &&
         one.param_group.learning_rate == other.param_group.learning_rate &&
         one.param_group.weight_decay == other.param_group.weight_decay;
}

/// Returns how many elements [begin, end) and [other_begin, other_end) have in common.
std::int64_t overlap(std::int64_t begin, std::int64_t end, std::int64_t other_begin,
                     std::int64_t other_end) {
  return std::max<std::int64_t>(0, std::min(end, other_end) - std::max(begin, other_begin));
}

}  // namespace

ShardLayout::ShardLayout(const std::vector<plan::StepPlan>& stages, const model::Model& model,
                         const optim::OptimizerSettings& optimizer, int rank)
    : stages_(stages),
      plan_(stages[static_cast<std::size_t>(
          stages.front().grid.coordinate(rank, plan::Axis::pipeline))]),
      model_(model),
      optimizer_(optimizer),
      rank_(rank) {}

std::vector<ParameterSlice> ShardLayout::slices_of_part(int flat,
                                                        const plan::Spans& divided) const {
  const plan::FlatParameter& whole = plan_.flats[flat];
  const std::int64_t begin = plan_.first_element(flat, divided, rank_);
  const std::int64_t end = begin + plan_.elements({flat, flat + 1}, divided);
  std::vector<ParameterSlice> slices;
  for (const model::Parameter& parameter : parameters(whole.unit)) {
    if (parameter.frozen == whole.trained) continue;
    const std::int64_t elements = parameter.piece_elements();
    for (std::int64_t piece = 0; piece < parameter.pieces; ++piece) {
      std::int64_t at = first_of_piece(flat, parameter, piece);
      if (at >= end || at + elements <= begin) continue;
      std::int64_t stored = piece * elements;
      for (const model::ElementRuns& runs : parameter.elements_of_piece(piece)) {
        const std::int64_t first = std::max(at, begin), last = std::min(at + runs.count, end);
        const std::int64_t in_order = parameter.cut.by_columns ? stored : runs.first;
        if (first < last)
          slices.push_back({&parameter, runs.range(first - at, last - first),
                            in_order + (first - at), first - begin, last - first});
        at += runs.count;
        stored += runs.count;
      }
    }
  }
  std::sort(slices.begin(), slices.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return slices;
}

std::int64_t ShardLayout::parts_of_unit(int unit) const {
  return plan::unit_spans(plan_.grid, plan_.units[unit].layouts.expert_ranks).parts();
}

bool ShardLayout::is_in_one_run(int flat, const model::Parameter& parameter) const {
  const plan::FlatParameter& whole = plan_.flats[flat];
  const std::int64_t part = whole.elements / parts_of_unit(whole.unit);
  return parameter.pieces == 1 &&
         parameter.offset / part == (parameter.offset + parameter.elements() - 1) / part;
}

/// Returns the offset of a piece. Each of the ranks that compute together has its elements in one
/// part, with padding behind them.
std::int64_t ShardLayout::first_of_piece(int flat, const model::Parameter& parameter,
                                         std::int64_t piece) const {
  const plan::FlatParameter& whole = plan_.flats[flat];
  const std::int64_t parts = parts_of_unit(whole.unit);
  const std::int64_t elements = whole.elements / parts;
  const std::int64_t offset = parameter.offset + piece * parameter.piece_stride;
  return offset / elements * (whole.padded / parts) + offset % elements;
}

std::vector<ParameterSlice> ShardLayout::slices_in_buffer(int buffer,
                                                          const plan::Spans& divided) const {
  std::vector<ParameterSlice> slices;
  if (buffer < 0) return slices;
  const plan::FlatRange flats = plan_.buffers[buffer].flats;
  for (int flat = flats.first; flat < flats.end; ++flat) {
    const std::int64_t begin = offset_in(buffer, flat, divided);
    const bool packed = is_packed(buffer);
    for (ParameterSlice slice : slices_of_part(flat, divided)) {
      slice.offset += begin;
      if (packed) {
        if (optim::rule_of(optimizer_, *slice.parameter) == optim::OptimizerKind::muon) continue;
        slice.offset -= whole_matrices_before(plan_.flats[flat].unit, slice.offset);
      }
      slices.push_back(slice);
    }
  }
  return slices;
}

bool ShardLayout::is_packed(int buffer) const {
  const int owner = plan_.owner(plan_.buffers[buffer]);
  if (owner < 0) return false;
  const plan::PlannedUnit& unit = plan_.units[owner];
  return buffer == unit.second_moments && !unit.whole_matrices.empty();
}

/// Returns how many of the first `offset` elements that the rank updates are in whole matrices.
std::int64_t ShardLayout::whole_matrices_before(int unit, std::int64_t offset) const {
  const std::int64_t begin = plan_.first_element(plan_.trained(unit).first,
                                                 plan_.units[unit].layouts.update.divided, rank_);
  std::int64_t elements = 0;
  for (const plan::WholeMatrix& matrix : plan_.units[unit].whole_matrices)
    elements += overlap(matrix.offset, matrix.end(), begin, begin + offset);
  return elements;
}

std::vector<UpdateRange> ShardLayout::update_ranges(int unit, DType moments,
                                                    std::uint64_t seed) const {
  std::vector<UpdateRange> ranges;
  const plan::FlatRange trained = plan_.trained(unit);
  if (trained.empty()) return ranges;
  for (const ParameterSlice& slice :
       slices_of_part(trained.first, plan_.units[unit].layouts.update.divided)) {
    const model::Parameter& parameter = *slice.parameter;
    UpdateRange next;
    next.parameter = &parameter;
    next.rule = optim::rule_of(optimizer_, parameter);
    next.param_group = optim::param_group_of(optimizer_.parameters, parameter,
                                             optimizer_.learning_rate, optimizer_.weight_decay);
    next.elements = slice.elements;
    next.first = slice.first;
    next.offset = slice.offset;
    next.second_offset = slice.offset - whole_matrices_before(unit, slice.offset);
    next.count = slice.count;
    next.rounding_key = math::random_key(seed, parameter.full_name() + " moments");
    const bool may_merge = moments == DType::fp32 && next.rule != optim::OptimizerKind::muon;
    if (may_merge && !ranges.empty() && are_updated_alike(ranges.back(), next))
      ranges.back().count = next.offset + next.count - ranges.back().offset;
    else
      ranges.push_back(next);
  }
  return ranges;
}

std::vector<ElementRange> ShardLayout::normed_ranges(int unit) const {
  std::vector<ElementRange> ranges;
  const plan::FlatRange trained = plan_.trained(unit);
  if (trained.empty()) return ranges;
  const plan::Spans& divided = plan_.units[unit].layouts.gradient.divided;
  std::int64_t begin = 0;
  const auto add_up_to = [&](std::int64_t end) {
    if (begin < end) ranges.push_back({begin, end});
  };
  for (const ParameterSlice& slice : slices_of_part(trained.first, divided)) {
    if (slice.parameter->sign_rate == 0.0) continue;
    add_up_to(slice.offset);
    begin = model::round_up(slice.offset + slice.count, math::norm_block);
  }
  add_up_to(plan_.elements(trained, divided));
  return ranges;
}

std::vector<Gap> ShardLayout::gaps(int unit) const {
  std::vector<Gap> gaps;
  const plan::FlatRange trained = plan_.trained(unit);
  if (trained.empty()) return gaps;
  std::int64_t end = 0;
  const auto add_up_to = [&](std::int64_t begin) {
    if (begin > end) gaps.push_back({end, begin});
  };
  const plan::Spans& of_unit = plan_.units[unit].layouts.gathered.divided;
  for (const ParameterSlice& slice : slices_of_part(trained.first, of_unit)) {
    add_up_to(slice.offset);
    end = slice.offset + slice.count;
  }
  add_up_to(plan_.elements(trained, of_unit));
  return gaps;
}

}  // namespace ostrakon::train
