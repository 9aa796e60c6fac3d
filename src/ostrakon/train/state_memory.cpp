// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/state_memory.hpp>

#include <cstring>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/model/unit.hpp>
#include <ostrakon/train/dispatch_dtype.hpp>
#include <stdexcept>
#include <type_traits>

namespace ostrakon::train {

StateMemory::StateMemory(const Programs& programs, bool pinned)
    : program_(programs.train),
      arena_(programs.arena_bytes(plan::Space::device)),
      host_arena_(programs.arena_bytes(plan::Space::host), plan::Space::host, pinned),
      scratch_(reinterpret_cast<float*>(arena_.data() + program_.memory.persistent_bytes)) {
  const std::int64_t room = arena_.bytes() - program_.memory.persistent_bytes;
  constexpr std::int64_t chunks = 2;  // scratch, and what is in flight
  chunk_ = room / (chunks * static_cast<std::int64_t>(sizeof(float))) / model::parameter_alignment *
           model::parameter_alignment;
}

void StateMemory::require_scratch() const {
  if (chunk_ <= 0) throw std::logic_error("the arena has no staging chunk");
}

void StateMemory::store(DType dtype, const float* values, int buffer, std::int64_t first,
                        std::int64_t count) {
  dispatch_dtype(dtype, [&](auto one) {
    using T = decltype(one);
    T* const target = at<T>(buffer) + first;
    if (!is_on_host(buffer)) return math::convert(exec_, values, target, count);
    T* const converted = transfer<T>();
    math::convert(exec_, values, converted, count);
    math::copy_to_host(exec_, converted, target, static_cast<std::size_t>(count));
  });
}

const float* StateMemory::fetch(DType dtype, int buffer, std::int64_t first, std::int64_t count) {
  const float* fetched = nullptr;
  dispatch_dtype(dtype, [&](auto one) {
    using T = decltype(one);
    const T* values = at<T>(buffer) + first;
    if (is_on_host(buffer)) {
      T* const copied = transfer<T>();
      math::copy_to_device(exec_, values, copied, static_cast<std::size_t>(count));
      values = copied;
    }
    if constexpr (std::is_same<T, float>::value) {
      fetched = values;
    } else {
      math::convert(exec_, values, scratch_, count);
      fetched = scratch_;
    }
  });
  return fetched;
}

void StateMemory::clear(int buffer) {
  const auto bytes = static_cast<std::size_t>(program_.plan.buffers[buffer].bytes);
  if (is_on_host(buffer))
    std::memset(at<char>(buffer), 0, bytes);
  else
    Kokkos::deep_copy(exec_, math::UnmanagedArray<char, Memory>(at<char>(buffer), bytes), char{0});
}

}  // namespace ostrakon::train
