// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/diagnosis.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/transfer.hpp>
#include <vector>

namespace ostrakon::train {
namespace {

std::int64_t count_non_finite_on_host(HostView<const float*> values) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values(i))) ++found;
  return found;
}

std::int64_t count_non_finite(const Exec& exec, View<const float*> values) {
  constexpr std::int64_t most = 65536;
  std::vector<float> copy;
  std::int64_t found = 0;
  for (std::int64_t begin = 0; begin < values.size(); begin += most) {
    const std::int64_t end = std::min(begin + most, values.size());
    copy.resize(static_cast<std::size_t>(end - begin));
    math::copy_to_host(exec, values.range(begin, end), host_view(copy));
    found += count_non_finite_on_host(host_view(copy));
  }
  return found;
}

}  // namespace

Diagnosis::Diagnosis(const plan::StepPlan& plan, const plan::ModelDescription& model, int rank,
                     comm::Communicator& world)
    : plan_(plan), model_(model), rank_(rank), world_(world) {}

void Diagnosis::inspect(const runtime::ActionBuffers& buffers, View<const float*> own,
                        View<const float*> tied) {
  const int unit = buffers.action.unit;
  const int distance = distance_of(unit);
  inspect(buffers, unit, distance, own);
  inspect(buffers, plan_.units[unit].tied_to, distance + 1, tied);
}

void Diagnosis::inspect(const runtime::ActionBuffers& buffers, int unit, int distance,
                        View<const float*> gradients) {
  if (!gradients || (origin_ && origin_->distance <= distance)) return;
  const std::int64_t elements =
      plan_.elements(plan_.trained(unit), plan_.units[unit].layouts.gathered.divided);
  if (count_non_finite(buffers.exec, gradients.range(0, elements)) > 0)
    origin_ = {distance, buffers.action.micro_batch,
               buffers.action.adds_to == plan::AddsTo::partial_sum};
}

std::string Diagnosis::name_origin(const runtime::ActionBuffers& buffers) {
  double nearest = origin_ ? origin_->distance : std::numeric_limits<double>::infinity();
  world_.all_reduce_min(&nearest, 1);
  if (!std::isfinite(nearest)) return name_sum(find_sum(buffers));
  const auto distance = static_cast<int>(nearest);
  const int computed = static_cast<int>(model_.units.size()) - 1 - distance / 2;
  const int unit = distance % 2 == 0 ? computed : model_.units[computed].tied_to;
  const bool mine = origin_ && origin_->distance == distance;
  std::string ranks;
  int more = -4;  // number of names shown
  for (const std::string& rank : world_.gather_texts(
           mine ? text("rank ", world_.rank(),
                       origin_->is_sum ? " (sum up to micro-batch " : " (micro-batch ",
                       origin_->micro_batch, ")")
                : ""))
    if (!rank.empty() && ++more <= 0) ranks += (ranks.empty() ? "" : ", ") + rank;
  return text("the gradient of ", model_.units[unit].name, " is not finite on ", ranks,
              more > 0 ? text(" and ", more, " more") : "");
}

Diagnosis::NonFiniteSum Diagnosis::find_sum(const runtime::ActionBuffers& buffers) const {
  for (int u = static_cast<int>(plan_.units.size()) - 1; u >= 0; --u) {
    const int buffer = plan_.units[u].gradients;
    if (buffer < 0) continue;
    const plan::Buffer& gradients = plan_.buffers[buffer];
    const plan::Spans& divided = plan_.units[u].layouts.gradient.divided;
    const std::int64_t first = plan_.offset_in(gradients, plan_.trained(u).first, divided, rank_);
    const std::int64_t end = first + plan_.elements(plan_.trained(u), divided);
    // On a device, counting copies and waits, which a diagnosing step may do. Without one, it runs
    // on a thread that Kokkos may not know.
    const std::int64_t count =
        gradients.space == plan::Space::host || !has_device
            ? count_non_finite_on_host(buffers.view<float, OnHost>(buffer).range(first, end))
            : count_non_finite(buffers.exec,
                               buffers.view<float, OnDevice>(buffer).range(first, end));
    if (count > 0) return {plan_.units[u].number, count};
  }
  return {};
}

void Diagnosis::note_sum(int unit, std::int64_t elements) {
  const int number = plan_.units[unit].number;
  if (number > noted_.unit) noted_ = {number, elements};
}

std::string Diagnosis::name_sum(const NonFiniteSum& mine) {
  double last = mine.unit;
  world_.all_reduce_max(&last, 1);
  if (last < 0.0) return "a gradient is not finite";
  const auto unit = static_cast<int>(last);
  std::string shards;
  int more = 0;
  for (const std::string& one : world_.gather_texts(
           mine.unit == unit ? text(mine.elements, mine.elements == 1 ? " element" : " elements",
                                    " in the shard of rank ", world_.rank())
                             : "")) {
    if (one.empty()) continue;
    if (shards.empty())
      shards = one;
    else
      ++more;
  }
  return text("the gradient of ", model_.units[unit].name,
              " is not finite when summed over micro-batches and ranks (", shards,
              more > 0 ? text(", more in ", more, more == 1 ? " other" : " others") : "", ")");
}

}  // namespace ostrakon::train
