// SPDX-License-Identifier: Apache-2.0
// This file saves a rank's state to a checkpoint, restores it, and exchanges parts of it.
#include <algorithm>
#include <cstring>
#include <ostrakon/base/threads.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/state/model_state.hpp>
#include <stdexcept>

namespace ostrakon::train {

using checkpoint::State;

void ModelState::note_saved_bytes() {
  std::int64_t staged = 0;
  for (const SavedSlice& saved : saved_slices(layout_)) {
    const std::int64_t size = bytes_of(dtype_of(saved.slice.state));
    const std::int64_t bytes = saved.slice.count * size;
    const bool widens = saved.slice.state == State::parameters && copy_dtype() != DType::fp32 &&
                        std::any_of(plan_.units.begin(), plan_.units.end(), [&](const auto& unit) {
                          return unit.compute_copy == saved.buffer;
                        });
    saved_.push_back({saved.buffer, saved.offset * (widens ? bytes_of(copy_dtype()) : size), bytes,
                      staged, widens});
    staged += bytes;
  }
  if (plan_.checkpoint >= 0 && staged > plan_.buffers[plan_.checkpoint].bytes)
    throw std::logic_error("a checkpoint's copy is larger than planned");
}

void ModelState::stage() {
  exec_.fence();
  const HostView<char*> copy = memory_.view<char, OnHost>(plan_.checkpoint);
  // The copy is made in parts of this many bytes, so that all cores of this rank can take part.
  constexpr std::int64_t most = std::int64_t{4} << 20;
  struct Copy {
    HostView<const char*> from;
    HostView<char*> to;
  };
  std::vector<Copy> copies;
  for (const SavedBytes& slice : saved_) {
    const HostView<char*> to = copy.range(slice.staged, slice.staged + slice.bytes);
    if (slice.widens) {
      widen(slice, 0, to);
      continue;
    }
    if (!memory_.is_host_readable(slice.buffer)) {
      math::copy_to_host(exec_, saved_bytes<OnDevice>(slice), to);
      continue;
    }
    const HostView<const char*> from = saved_bytes<OnHost>(slice);
    for (std::int64_t first = 0; first < slice.bytes; first += most) {
      const std::int64_t end = std::min(first + most, slice.bytes);
      copies.push_back({from.range(first, end), to.range(first, end)});
    }
  }
  constexpr int most_threads = 4;  // this many keep memory busy
  in_threads(std::clamp(mesh_.cores(), 1, most_threads), static_cast<std::int64_t>(copies.size()),
             [&](int, std::int64_t i) {
               const Copy& one = copies[static_cast<std::size_t>(i)];
               std::memcpy(one.to.data(), one.from.data(), static_cast<std::size_t>(one.to.size()));
             });
}

const void* ModelState::saved(std::size_t slice, std::int64_t first, std::int64_t bytes,
                              bool staged) {
  const SavedBytes& one = saved_[slice];
  if (staged) {
    const std::int64_t begin = one.staged + first;
    return memory_.view<char, OnHost>(plan_.checkpoint).range(begin, begin + bytes).data();
  }
  if (one.widens) {
    const HostView<char*> floats = bounce(bytes);
    widen(one, first, floats);
    return floats.data();
  }
  if (memory_.is_host_readable(one.buffer))
    return saved_bytes<OnHost>(one).range(first, first + bytes).data();
  const HostView<char*> copy = bounce(bytes);
  math::copy_to_host(exec_, saved_bytes<OnDevice>(one).range(first, first + bytes), copy);
  return copy.data();
}

template <class Space>
View<const char*, Space> ModelState::saved_bytes(const SavedBytes& saved) const {
  return memory_.view<char, Space>(saved.buffer).range(saved.begin, saved.begin + saved.bytes);
}

/// Writes elements of 16 bits as floats: bytes of these from the saved slice's byte `first` on.
void ModelState::widen(const SavedBytes& saved, std::int64_t first, HostView<char*> to) {
  constexpr auto of_float = static_cast<std::int64_t>(sizeof(float));
  dispatch_dtype(copy_dtype(), [&](auto one) {
    using T = decltype(one);
    constexpr auto of_number = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t count = to.size() / of_float;
    const std::int64_t begin = saved.begin + first / of_float * of_number;
    const std::int64_t end = begin + count * of_number;
    const char* from = nullptr;
    if (memory_.is_host_readable(saved.buffer)) {
      from = memory_.view<char, OnHost>(saved.buffer).range(begin, end).data();
    } else {
      narrow_.resize(static_cast<std::size_t>(end - begin));
      math::copy_to_host(exec_, memory_.view<char, OnDevice>(saved.buffer).range(begin, end),
                         host_view(narrow_));
      from = narrow_.data();
    }
    for (std::int64_t i = 0; i < count; ++i) {
      T number;
      std::memcpy(&number, from + i * of_number, sizeof number);
      const auto value = static_cast<float>(number);
      std::memcpy(to.data() + i * of_float, &value, sizeof value);
    }
  });
}

/// Returns host memory of that many bytes.
HostView<char*> ModelState::bounce(std::int64_t bytes) {
  bounce_.resize(std::max(bounce_.size(), static_cast<std::size_t>(bytes)));
  return host_view(bounce_).range(0, bytes);
}

const plan::Spans& ModelState::all_ranks(int buffer) const {
  return plan_.layouts_of(plan_.buffers[buffer]).gradient.divided;
}

/// Adds the parts of a unit's state buffer that this rank reads to `wanted`, to be read directly
/// into the buffer; where that is not possible, reads them at once. If several ranks have the same
/// part, each reads its share.
void ModelState::restore(int buffer, State state, checkpoint::CheckpointReader& checkpoint,
                         std::vector<checkpoint::Wanted>& wanted) {
  if (buffer < 0) return;
  memory_.clear(buffer);
  const std::int64_t size = bytes_of(dtype_of(state));
  const plan::Spans& share =
      layout_.is_packed(buffer) ? plan_.buffers[buffer].divided : all_ranks(buffer);
  for (const ParameterSlice& slice : layout_.slices_in_buffer(buffer, share)) {
    const int index = checkpoint.find(slice.parameter->owner, slice.parameter->name);
    const std::int64_t begin = slice.offset * size, end = begin + slice.count * size;
    if (memory_.is_host_readable(buffer)) {
      wanted.push_back({{state, index, slice.first, slice.count},
                        memory_.view<char, OnHost>(buffer).range(begin, end).data(),
                        column_pieces(*slice.parameter)});
      continue;
    }
    const View<char*> values = memory_.view<char, OnDevice>(buffer).range(begin, end);
    const std::int64_t most = checkpoint::block_bytes / size;
    const HostView<char*> block = bounce(checkpoint::block_bytes);
    for (std::int64_t done = 0; done < slice.count; done += most) {
      const std::int64_t some = std::min(most, slice.count - done);
      checkpoint.read({{{state, index, slice.first + done, some},
                        block.data(),
                        column_pieces(*slice.parameter)}});
      math::copy_to_device(exec_, block.range(0, some * size),
                           values.range(done * size, (done + some) * size));
    }
  }
}

/// Gathers the shares that ranks with the same part of a unit's state have read. Collective.
void ModelState::gather_shares(int buffer, DType dtype, const Channels& channels) {
  if (buffer < 0 || layout_.is_packed(buffer)) return;
  dispatch_dtype(dtype, [&](auto one) {
    using T = decltype(one);
    if (memory_.is_host_readable(buffer))
      gather_shares<T, OnHost>(buffer, channels);
    else
      gather_shares<T, OnDevice>(buffer, channels);
  });
}

template <class T, class Space>
void ModelState::gather_shares(int buffer, const Channels& channels) {
  const plan::Buffer& target = plan_.buffers[buffer];
  for (int flat = target.flats.first; flat < target.flats.end; ++flat) {
    const auto part_of = [&](const plan::Spans& divided) {
      const std::int64_t first = layout_.offset_in(buffer, flat, divided);
      return memory_.view<T, Space>(buffer).range(
          first, first + plan_.elements({flat, flat + 1}, divided));
    };
    for (plan::Spans part = all_ranks(buffer); part.size() > target.divided.size();
         part = part.outer())
      channels.of(plan::Stream::gather, part.innermost())
          .all_gather<T, Space>(exec_, part_of(part), part_of(part.outer()));
  }
}

/// Restores compute copies, from masters if these have all elements.
void ModelState::restore_compute_copy(int unit, checkpoint::CheckpointReader& checkpoint) {
  const int copy = plan_.units[unit].compute_copy, masters = plan_.units[unit].masters;
  const plan::Buffer& target = plan_.buffers[copy];
  if (masters < 0 || target.divided != plan_.buffers[masters].divided ||
      !(target.flats == plan_.buffers[masters].flats))
    return initialize(copy, copy_dtype(), &checkpoint);
  memory_.in_chunks(
      plan_.elements(target.flats, target.divided), [&](std::int64_t begin, std::int64_t count) {
        // fetch() may return the buffer that store() uses for conversion, so values are copied.
        const View<float*> values = memory_.scratch().range(0, count);
        const View<const float*> fetched = memory_.fetch(DType::fp32, masters, begin, count);
        math::copy<float>(exec_, fetched, values);
        memory_.store(copy_dtype(), values, copy, begin);
      });
}

/// Exchanges the part that this rank updates, and converts it to the copy to compute with.
void ModelState::exchange_averages(const plan::PlannedUnit& unit, int flat) {
  const plan::Spans& updated = unit.layouts.update.divided;
  const auto at = [&](int buffer) { return layout_.offset_in(buffer, flat, updated); };
  memory_.in_chunks(
      plan_.elements({flat, flat + 1}, updated), [&](std::int64_t begin, std::int64_t count) {
        const View<float*> values = memory_.scratch().range(0, count);
        const auto fetch = [&](int buffer) {
          math::copy<float>(exec_, memory_.fetch(DType::fp32, buffer, at(buffer) + begin, count),
                            values);
        };
        const HostView<float*> averages =
            view_as<float>(bounce(count * static_cast<std::int64_t>(sizeof(float))));
        fetch(unit.averages);
        math::copy_to_host(exec_, values, averages);
        fetch(unit.masters);
        memory_.store(DType::fp32, values, unit.averages, at(unit.averages) + begin);
        math::copy_to_device(exec_, averages, values);
        memory_.store(DType::fp32, values, unit.masters, at(unit.masters) + begin);
        if (unit.compute_copy >= 0)
          memory_.store(copy_dtype(), values, unit.compute_copy, at(unit.compute_copy) + begin);
      });
}

void ModelState::prepare_exchange() {
  mesh::run_collectively_by_name(mesh_.world(), [&] {
    bounce(memory_.scratch().size() * static_cast<std::int64_t>(sizeof(float)));
  });
}

void ModelState::exchange_averages(const Channels& channels) {
  for (int u = 0; u < layout_.units(); ++u)
    if (plan_.units[u].averages >= 0) exchange_averages(plan_.units[u], plan_.trained(u).first);
  exec_.fence();
  for (const plan::PlannedUnit& unit : plan_.units) {
    if (unit.averages < 0) continue;
    gather_shares(unit.masters, DType::fp32, channels);
    gather_shares(unit.compute_copy, copy_dtype(), channels);
  }
  exec_.fence();
}

void ModelState::restore(checkpoint::CheckpointReader& checkpoint, const Channels& channels) {
  has_values_ = false;
  mesh::run_collectively_by_name(mesh_.world(), [&] {
    std::vector<checkpoint::Wanted> wanted;
    for (const plan::PlannedUnit& unit : plan_.units)
      for (const State state : checkpoint::all_states)
        restore(buffer_of(unit, state), state, checkpoint, wanted);
    exec_.fence();
    checkpoint.read(wanted);
  });
  for (const plan::PlannedUnit& unit : plan_.units)
    for (const State state : checkpoint::all_states)
      gather_shares(buffer_of(unit, state), dtype_of(state), channels);
  mesh::run_collectively_by_name(mesh_.world(), [&] {
    for (int u = 0; u < layout_.units(); ++u)
      if (plan_.units[u].compute_copy >= 0) restore_compute_copy(u, checkpoint);
    exec_.fence();
  });
  has_values_ = true;
}

}  // namespace ostrakon::train
