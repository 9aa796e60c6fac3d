// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <vector>

namespace ostrakon::train {

/// The arenas of a run, and the persistent buffers in them. Takes the memory that `programs` need,
/// which must outlive it. Not to be used while a program runs.
class StateMemory {
 public:
  /// `pinned`: whether host memory is pinned, if there is a device.
  StateMemory(const Programs& programs, bool pinned);

  /// Memory of the device and of the host that other ranks can map; of no bytes where they can't.
  std::vector<SharedMemory*> shared() { return {&arena_.shared(), &host_arena_.shared()}; }
  runtime::Arenas arenas() const { return {arena_.data(), host_arena_.data()}; }
  const runtime::Arena& device_arena() const { return arena_; }

  /// A view of a state buffer. `Space`: OnDevice or OnHost, where the buffer is, or OnHost if the
  /// host can read it there. Throws std::logic_error where it is in other memory.
  template <class T, class Space>
  View<T*, Space> view(int buffer) const {
    return runtime::view_of<T, Space>(program_, arenas(), buffer, origin_of(buffer));
  }
  bool is_on_host(int buffer) const {
    return program_.plan.buffers[buffer].space == plan::Space::host;
  }
  bool is_host_readable(int buffer) const {
    return memory_is_host_accessible || is_on_host(buffer);
  }

  // Values are moved chunk by chunk through device memory behind the state.

  /// Calls work(begin, count) for [0, count) in chunks, each of which fits into scratch().
  template <class Work>
  void in_chunks(std::int64_t count, const Work& work) const {
    require_scratch();
    for (std::int64_t begin = 0; begin < count; begin += chunk_)
      work(begin, std::min(chunk_, count - begin));
  }
  /// Space for a chunk of float.
  View<float*> scratch() const { return scratch_; }
  /// Writes a chunk into a buffer of `dtype`, from its element `first` on.
  void store(DType dtype, View<const float*> values, int buffer, std::int64_t first);
  /// Reads `count` elements of a buffer as float, into scratch() unless the buffer itself has
  /// floats. Valid until the next call.
  View<const float*> fetch(DType dtype, int buffer, std::int64_t first, std::int64_t count);
  /// Fills a buffer with zeros.
  void clear(int buffer);

 private:
  void require_scratch() const;
  /// Null if views do not check, or the buffer is not part of the state.
  const ViewOrigin* origin_of(int buffer) const {
    const auto found = origins_.find(buffer);
    return found == origins_.end() ? nullptr : &found->second;
  }
  /// A second chunk, for staging between host and device.
  template <class T>
  View<T*> transfer(std::int64_t count) const {
    return view_as<T>(transfer_).range(0, count);
  }

  const runtime::Program& program_;
  runtime::Arena arena_, host_arena_;
  std::map<int, ViewOrigin> origins_;  ///< origin of each persistent buffer, if views check
  ViewOrigin scratch_origin_{"what lies behind the state", "staging"};
  View<float*> scratch_, transfer_;
  std::int64_t chunk_;  ///< number of elements
  Exec exec_;
};

}  // namespace ostrakon::train
