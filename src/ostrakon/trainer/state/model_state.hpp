// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/trainer/channels.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <ostrakon/trainer/state/saved_slices.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <ostrakon/trainer/state/state_memory.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

// The next two functions fill `values`, elements from `begin` on of a part of a flat parameter with
// `slices`. Gaps are filled with zeros.

/// Computes initial values by the parameters' initializers: a function of `seed`, the parameter's
/// name and the element.
void make_initial_values(const Exec& exec, const std::vector<ParameterSlice>& slices,
                         std::int64_t begin, std::uint64_t seed, View<float*> values);

/// Reads values from `weights`, and computes initial ones of parameters that it does not have.
/// Throws whatever `weights` throws.
void read_values(const Exec& exec, const std::vector<ParameterSlice>& slices, std::int64_t begin,
                 checkpoint::ParameterSource& weights, std::uint64_t seed, View<float*> values);

/// A rank's state from step to step: masters, compute copies, moments and averages, in arenas that
/// it owns.
/// Methods are collective over the mesh unless said otherwise.
class ModelState {
 public:
  struct Options {
    DType moments = DType::fp32;
    std::uint64_t seed = 1;  ///< seed of random weights
    bool pinned_host_memory = true;
  };
  /// Takes the arenas. All arguments but the options must outlive it. Not collective.
  ModelState(const Programs& programs, const ShardLayout& layout, const Options& options,
             mesh::Mesh& mesh);

  const StateMemory& memory() const { return memory_; }
  StateMemory& memory() { return memory_; }
  /// Whether it was initialized or restored with success.
  bool has_values() const { return has_values_; }

  /// Launches once each kernel that initialize(), restore() and digest() launch, so that a device
  /// has loaded them. Overwrites some of the state, so it is called before the state has values.
  /// Not collective.
  void warm_up();

  /// Sets weights, averages equal to them, and moments of zero, unit by unit, directly in shards.
  /// Weights are random, or each rank reads its own from `weights`. Throws CollectiveError where a
  /// rank can't read.
  void initialize(checkpoint::ParameterSource* weights);

  /// Hash of parameters, moments and averages by parameter and element: the same for every layout.
  /// Throws CollectiveError where replicas differ.
  std::uint64_t digest();

  /// Allocates the host memory that exchange_averages() needs. Collective; throws CollectiveError
  /// where a rank has too little.
  void prepare_exchange();
  /// Exchanges trained parameters and their averages, after prepare_exchange(). A second call makes
  /// all bits what they were. Copies of tied parameters that another stage of a pipeline has keep
  /// their values.
  void exchange_averages(const Channels& channels);

  /// Copies the data that this rank saves to the staging buffer of the plan. Not collective.
  void stage();
  /// Returns `bytes` bytes of saved_slices()[slice], from its byte `first` on: of the staging copy
  /// (`staged`), or of the current state. On devices the latter is in a buffer, until the next
  /// call. Not collective; a thread may call it with `staged` while steps run.
  const void* saved(std::size_t slice, std::int64_t first, std::int64_t bytes, bool staged);

  /// Takes the state from a checkpoint that fits; each rank reads its part. A part that several
  /// ranks have is read in shares and gathered. Throws CollectiveError where a rank can't read it;
  /// the arrays are undefined then.
  void restore(checkpoint::CheckpointReader& checkpoint, const Channels& channels);

 private:
  /// The location of a saved slice, in bytes.
  struct SavedBytes {
    int buffer;
    std::int64_t begin;  ///< offset in the buffer
    std::int64_t bytes;
    std::int64_t staged;  ///< offset in the staging copy
    /// Whether the buffer has elements of copy_dtype(), which are saved as floats; `begin` is in
    /// bytes of these, and `bytes` in bytes of floats.
    bool widens;
  };

  DType compute_dtype() const { return layout_.model().dtype(); }
  /// The dtype of the parameters that units compute with, or gather from.
  DType copy_dtype() const {
    const plan::Layouts& layouts = plan_.layouts;
    return layouts.compute.element_bytes == layouts.masters.element_bytes ? DType::fp32
                                                                          : compute_dtype();
  }
  DType dtype_of(checkpoint::State state) const { return train::dtype_of(state, moments_); }

  // model_state.cpp
  void initialize(int buffer, DType dtype, checkpoint::ParameterSource* weights);
  struct Kind {
    const char* name;
    int plan::PlannedUnit::*which;
    DType dtype;
    bool counts;  ///< compute copies don't count in the digest, but must be equal
  };
  std::array<Kind, 5> kinds() const;
  std::uint64_t digest_of(const char* what, int plan::PlannedUnit::*which, DType dtype, int parts,
                          const plan::Spans& counted);
  std::string difference(const char* what, std::uint64_t mine, const plan::Spans& stored);

  // model_state_checkpoint.cpp
  void note_saved_bytes();
  template <class Space>
  View<const char*, Space> saved_bytes(const SavedBytes& saved) const;
  HostView<char*> bounce(std::int64_t bytes);
  void widen(const SavedBytes& saved, std::int64_t first, HostView<char*> to);
  void restore(int buffer, checkpoint::State state, checkpoint::CheckpointReader& checkpoint,
               std::vector<checkpoint::Wanted>& wanted);
  void exchange_averages(const plan::PlannedUnit& unit, int flat);
  void gather_shares(int buffer, DType dtype, const Channels& channels);
  template <class T, class Space>
  void gather_shares(int buffer, const Channels& channels);
  void restore_compute_copy(int unit, checkpoint::CheckpointReader& checkpoint);

  /// The spans that divide a state buffer's flat parameters over all ranks, each part on one rank.
  const plan::Spans& all_ranks(int buffer) const;

  const plan::StepPlan& plan_;
  const ShardLayout& layout_;
  mesh::Mesh& mesh_;
  DType moments_;
  std::uint64_t seed_;
  StateMemory memory_;
  std::vector<SavedBytes> saved_;
  std::vector<char> bounce_;  ///< host memory for data of a device
  std::vector<char> narrow_;  ///< host memory for elements of 16 bits, of a device or not
  Exec exec_;
  bool has_values_ = false;
};

}  // namespace ostrakon::train
