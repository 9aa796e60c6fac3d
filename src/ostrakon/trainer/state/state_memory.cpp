// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/state/state_memory.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/model/unit.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace ostrakon::train {

StateMemory::StateMemory(const Programs& programs, bool pinned)
    : program_(programs.train),
      arena_(programs.arena_bytes(plan::Space::device), plan::Space::device, pinned,
             programs.train.plan.grid.window > 0),
      host_arena_(programs.arena_bytes(plan::Space::host), plan::Space::host, pinned,
                  programs.train.plan.grid.window > 0) {
  const std::vector<plan::Buffer>& buffers = program_.plan.buffers;
  for (std::size_t b = 0; views_check && b < buffers.size(); ++b) {
    if (!buffers[b].persistent) continue;
    ViewOrigin& origin = origins_[static_cast<int>(b)];
    origin.buffer = buffers[b].name;
    origin.action = "work between steps";
  }
  const std::int64_t room = arena_.bytes() - program_.memory.persistent_bytes;
  constexpr std::int64_t chunks = 2;  // scratch, and the chunk in flight
  chunk_ = room / (chunks * static_cast<std::int64_t>(sizeof(float))) / model::parameter_alignment *
           model::parameter_alignment;
  if (chunk_ <= 0) return;
  const View<float*> all(reinterpret_cast<float*>(arena_.data() + program_.memory.persistent_bytes),
                         chunks * chunk_, &scratch_origin_);
  scratch_ = all.range(0, chunk_);
  transfer_ = all.range(chunk_, chunks * chunk_);
}

void StateMemory::require_scratch() const {
  if (chunk_ <= 0) throw std::logic_error("the arena has no staging chunk");
}

void StateMemory::store(DType dtype, View<const float*> values, int buffer, std::int64_t first) {
  const std::int64_t end = first + values.size();
  dispatch_dtype(dtype, [&](auto one) {
    using T = decltype(one);
    if (!is_on_host(buffer))
      return math::convert<float, T, OnDevice>(exec_, values,
                                               view<T, OnDevice>(buffer).range(first, end));
    const View<T*> converted = transfer<T>(values.size());
    math::convert<float, T, OnDevice>(exec_, values, converted);
    math::copy_to_host(exec_, converted, view<T, OnHost>(buffer).range(first, end));
  });
}

View<const float*> StateMemory::fetch(DType dtype, int buffer, std::int64_t first,
                                      std::int64_t count) {
  View<const float*> fetched;
  dispatch_dtype(dtype, [&](auto one) {
    using T = decltype(one);
    View<const T*> values;
    if (is_on_host(buffer)) {
      const View<T*> copied = transfer<T>(count);
      math::copy_to_device(exec_, view<T, OnHost>(buffer).range(first, first + count), copied);
      values = copied;
    } else {
      values = view<T, OnDevice>(buffer).range(first, first + count);
    }
    if constexpr (std::is_same<T, float>::value) {
      fetched = values;
    } else {
      fetched = scratch_.range(0, count);
      math::convert<T, float, OnDevice>(exec_, values, scratch_.range(0, count));
    }
  });
  return fetched;
}

void StateMemory::clear(int buffer) {
  if (is_on_host(buffer)) {
    const HostView<char*> bytes = view<char, OnHost>(buffer);
    std::fill_n(bytes.data(), bytes.size(), '\0');  // data() is null without bytes
  } else {
    math::clear(exec_, view<char, OnDevice>(buffer));
  }
}

}  // namespace ostrakon::train
