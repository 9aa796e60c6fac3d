// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/shard_map.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <vector>

// This file computes which rank saves which elements, from plans alone.

namespace ostrakon::train {

/// See checkpoint::ParameterEntry::column_pieces.
std::int64_t column_pieces(const model::Parameter& parameter);

/// The buffer with a kind of a unit's state, or -1.
int buffer_of(const plan::PlannedUnit& unit, checkpoint::State state);

/// The dtype in which a kind of state is kept. `moments`: the dtype of moments.
DType dtype_of(checkpoint::State state, DType moments);

/// A slice of one kind of a parameter's state that a rank saves, and its place in memory.
struct SavedSlice {
  checkpoint::Slice slice;
  int buffer;  ///< where frozen parameters have no masters, that of their copies in 16 bits
  std::int64_t offset;  ///< offset in the buffer, in elements
};

/// All slices that the layout's rank saves: of every unit the part that no other rank has, or that
/// this rank saves for others. Over all ranks each element of the state is in one slice.
std::vector<SavedSlice> saved_slices(const ShardLayout& layout);

/// The location of a rank of the world.
struct RankLocation {
  int rank;  ///< its number in plans
  int node;
};

/// Finds the locations of all ranks of the world, in their order. Collective, as groups need not be
/// of neighbours.
std::vector<RankLocation> find_rank_locations(int rank, mesh::Mesh& mesh);

/// Computes which rank saves what; the same on every rank.
checkpoint::ShardMap make_shard_map(const ShardLayout& layout,
                                    const std::vector<RankLocation>& locations, DType moments);

/// Throws Error where a checkpoint is not of the layout's model, or lacks state that the rank
/// needs. `loss`: the model's loss terms, to bound its counters.
void require_fit(const checkpoint::Manifest& manifest, const ShardLayout& layout, DType moments,
                 const model::LossTerms& loss);

}  // namespace ostrakon::train
