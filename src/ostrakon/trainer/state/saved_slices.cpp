// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/state/saved_slices.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/print.hpp>
#include <stdexcept>
#include <string>

namespace ostrakon::train {

using checkpoint::State;

std::int64_t column_pieces(const model::Parameter& parameter) {
  return parameter.cut.by_columns ? parameter.pieces : 1;
}

int buffer_of(const plan::PlannedUnit& unit, State state) {
  switch (state) {
    case State::parameters:
      return unit.masters;
    case State::first_moment:
      return unit.first_moments;
    case State::second_moment:
      return unit.second_moments;
    case State::average:
      return unit.averages;
  }
  throw std::logic_error("unknown state");
}

DType dtype_of(State state, DType moments) {
  const bool is_moment = state == State::first_moment || state == State::second_moment;
  return is_moment ? moments : DType::fp32;
}

std::vector<SavedSlice> saved_slices(const ShardLayout& layout) {
  const plan::StepPlan& plan = layout.plan();
  std::vector<int> first_row = {0};  // first row of each of the model's units in a checkpoint's
                                     // table
  for (int u = 0; u < layout.model().units(); ++u)
    first_row.push_back(first_row.back() + static_cast<int>(layout.model().parameters(u).size()));
  std::vector<SavedSlice> slices;
  for (int u = 0; u < layout.units(); ++u) {
    const std::vector<model::Parameter>& parameters = layout.parameters(u);
    const int first = first_row[static_cast<std::size_t>(plan.units[u].number)];
    for (const State state : checkpoint::all_states) {
      const plan::Layouts& layouts = plan.units[u].layouts;
      const auto add = [&](int buffer, bool frozen_alone) {
        for (const ParameterSlice& slice :
             layout.slices_in_buffer(buffer, layouts.gradient.divided)) {
          if (frozen_alone && !slice.parameter->frozen) continue;
          // A unit's parameters are consecutive in that array.
          const auto row = static_cast<int>(slice.parameter - parameters.data());
          slices.push_back({{state, first + row, slice.first, slice.count}, buffer, slice.offset});
        }
      };
      const bool has_copies_alone = layouts.frozen_without_masters && state == State::parameters &&
                                    plan.units[u].masters >= 0;
      if (has_copies_alone) add(plan.units[u].compute_copy, true);
      add(buffer_of(plan.units[u], state), false);
    }
  }
  return slices;
}

std::vector<RankLocation> find_rank_locations(int rank, mesh::Mesh& mesh) {
  std::vector<RankLocation> locations;
  for (const std::string& one : mesh.world().gather_texts(text(rank, " ", mesh.node_index()))) {
    TextReader stream(one);
    RankLocation location{};
    stream >> location.rank >> location.node;
    locations.push_back(location);
  }
  return locations;
}

checkpoint::ShardMap make_shard_map(const ShardLayout& layout,
                                    const std::vector<RankLocation>& locations, DType moments) {
  checkpoint::ShardMap map;
  std::vector<std::string> unit_names(static_cast<std::size_t>(layout.model().units()));
  for (const plan::StepPlan& stage : layout.stages())
    for (const plan::PlannedUnit& unit : stage.units)
      unit_names[static_cast<std::size_t>(unit.number)] = unit.name;
  for (int u = 0; u < layout.model().units(); ++u)
    for (const model::Parameter& parameter : layout.model().parameters(u))
      map.parameters.push_back({parameter.owner, parameter.name, parameter.shape, unit_names[u],
                                parameter.frozen, column_pieces(parameter)});
  for (const State state : checkpoint::all_states)
    map.dtypes[static_cast<std::size_t>(state)] = dtype_of(state, moments);
  for (const RankLocation& location : locations) {
    map.slices.emplace_back();
    for (const SavedSlice& saved : saved_slices(layout.of_rank(location.rank)))
      map.slices.back().push_back(saved.slice);
    map.nodes.push_back(location.node);
  }
  return map;
}

namespace {

/// The row of each of the model's parameters in the manifest's table.
using Rows = std::vector<std::size_t>;

Rows require_same_parameters(const checkpoint::Manifest& manifest,
                             const std::vector<const model::Parameter*>& parameters) {
  std::map<std::string, std::size_t> saved;
  for (const checkpoint::ParameterEntry& entry : manifest.parameters)
    saved.emplace(entry.path(), saved.size());
  Rows rows;
  for (const model::Parameter* parameter : parameters) {
    const auto found = saved.find(parameter->owner + "/" + parameter->name);
    require(found != saved.end(), "it has no parameter ", parameter->full_name(),
            ", which this model has");
    rows.push_back(found->second);
    const std::vector<std::int64_t>& shape = manifest.parameters[found->second].shape;
    require(shape == parameter->shape, "its ", parameter->full_name(), " has the shape ",
            hdf5::shape_text(shape), "; this model expects ", hdf5::shape_text(parameter->shape));
  }
  require(saved.size() == parameters.size(), "it has ", saved.size(),
          " parameters; this model has ", parameters.size());
  return rows;
}

/// Checks that a checkpoint has moments and averages for `slices`, those that this rank needs.
void require_all(const checkpoint::Manifest& manifest, const Rows& rows,
                 const std::vector<const model::Parameter*>& parameters,
                 const std::vector<SavedSlice>& slices, DType moments) {
  std::vector<std::array<bool, checkpoint::states>> has(manifest.parameters.size());
  for (const checkpoint::FileEntry& file : manifest.files)
    for (const checkpoint::PieceEntry& piece : file.pieces)
      has[static_cast<std::size_t>(piece.slice.parameter)]
         [static_cast<std::size_t>(piece.slice.state)] = true;
  for (const SavedSlice& saved : slices) {
    if (saved.slice.state == State::parameters) continue;
    const auto state = static_cast<std::size_t>(saved.slice.state);
    const auto parameter = static_cast<std::size_t>(saved.slice.parameter);
    const std::size_t row = rows[parameter];
    const bool is_average = saved.slice.state == State::average;
    require(has[row][state], "it has no ", checkpoint::name(saved.slice.state), " of ",
            parameters[parameter]->full_name(),
            manifest.parameters[row].frozen ? ", which was frozen" : "",
            is_average ? text(" (it is of a run without training.ema")
                       : text(" (its optimizer is ", manifest.optimizer),
            "); name it as checkpoint.initial_weights to begin at step 1 with its parameters");
    require(manifest.dtypes[state] == dtype_of(saved.slice.state, moments), "its moments are ",
            name(manifest.dtypes[state]),
            "; expected optimizer.moments = ", name(manifest.dtypes[state]), ", not ",
            name(moments));
  }
}

}  // namespace

void require_fit(const checkpoint::Manifest& manifest, const ShardLayout& layout, DType moments,
                 const model::LossTerms& loss) {
  std::vector<const model::Parameter*> parameters;
  for (int u = 0; u < layout.model().units(); ++u)
    for (const model::Parameter& parameter : layout.model().parameters(u))
      parameters.push_back(&parameter);
  const Rows rows = require_same_parameters(manifest, parameters);
  const std::int64_t of_sample = std::max<std::int64_t>(loss.terms / loss.samples, 1);
  require(manifest.progress.samples <= std::numeric_limits<std::int64_t>::max() / (2 * of_sample),
          "it has seen ", manifest.progress.samples, " samples of ", of_sample, " ", loss.name,
          ", more than can be counted");
  const DType masters = manifest.dtypes[static_cast<std::size_t>(State::parameters)];
  require(masters == DType::fp32, "its parameters are ", name(masters), "; expected fp32");
  require_all(manifest, rows, parameters, saved_slices(layout), moments);
}

}  // namespace ostrakon::train
