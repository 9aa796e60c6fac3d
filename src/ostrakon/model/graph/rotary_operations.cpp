// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/attention/rotated_norms.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <utility>

namespace ostrakon::model::graph {

template <class T>
std::vector<int> Operations<T>::rotary(const std::vector<int>& x, const std::string& name,
                                       std::int64_t head_width,
                                       const math::RotaryFrequencies& frequencies) {
  Call forward{name, x, {}}, backward{"d " + name, {}, {}};
  std::int64_t columns = 0;
  for (int v : x) {
    const int rotated = add_among_columns(v, "rotated " + value(v).name);
    forward.writes.push_back(rotated);
    forward.replaces.emplace_back(rotated, v);
    backward.reads.push_back(~rotated);
    backward.writes.push_back(~v);
    backward.replaces.emplace_back(~v, ~rotated);
    columns += columns_of(v);
  }
  const std::vector<int> made = forward.writes;
  forward.in_place = backward.in_place = true;
  forward.is_by_row = false;  // positions are those of all rows
  forward.work = backward.work = row_work(x.front(), 2 * columns);
  const auto count = static_cast<int>(x.size());
  const auto kernel = [=, leaf = leaf_](math::Rotation rotation) {
    return make_kernel([=](const Exec& exec, const Arguments& a) {
      const View<T**> heads = a.written<T>(0, count);
      for_each_run(leaf, a, heads.rows(), [&](const RunOfRows& run) {
        math::rotate<T>(exec, rotation, frequencies, heads.row_range(run.begin, run.end),
                        head_width, run.tokens, run.position, run.document_begins);
      });
    });
  };
  forward.kernel = kernel(math::Rotation::forward);
  backward.kernel = kernel(math::Rotation::inverse);
  join_norms(x, frequencies, forward, backward);
  append({{forward}, {backward}});
  return made;
}

/// Behind norms of heads a device computes these and the rotation in one kernel, and so it does in
/// backward where the rows of a leaf are one run and all heads have one weight.
template <class T>
void Operations<T>::join_norms(const std::vector<int>& x,
                               const math::RotaryFrequencies& frequencies, Call& forward,
                               Call& backward) const {
  const auto first = head_norms_.find(x.front());
  if (first == head_norms_.end()) return;
  const math::HeadNorm norm = first->second.norm;
  if (!math::can_norm_and_rotate<T>(norm, frequencies)) return;
  const auto count = static_cast<int>(x.size());
  std::vector<FusedKernel::Other> norms, gradients;
  for (int i = 0; i < count; ++i) {
    const int v = x[static_cast<std::size_t>(i)];
    if (head_norms_.count(v) == 0) return;
    norms.push_back({text("norm of heads ", v), FusedKernel::Order::before, i});
    // The one for the weight first: it reads what the other one replaces.
    gradients.push_back({text("d weight ", v), FusedKernel::Order::behind, i});
    gradients.push_back({text("d norm of heads ", v), FusedKernel::Order::behind, i});
    gradients.push_back({text("statistics ", v), FusedKernel::Order::before, 2, -1, 3 * i + 1});
  }
  const auto rows_of = [frequencies](const RunOfRows& run) {
    return math::RotaryRows{frequencies, run.tokens, run.position, run.document_begins};
  };
  forward.fused = std::make_shared<FusedKernel>(FusedKernel{
      norms, make_kernel([=, leaf = leaf_](const Exec& exec, const Arguments& a) {
        std::vector<Arguments> parts;
        for (int i = 0; i < count; ++i)
          if (const std::optional<Arguments> part = a.part(1 + i)) parts.push_back(*part);
        bool is_done = parts.size() == static_cast<std::size_t>(count);
        for_each_run(leaf, a, a.part(0)->written<T>(0).rows(), [&](const RunOfRows& run) {
          std::vector<math::NormedHeads<T>> heads;
          for (const Arguments& part : parts)
            heads.push_back({part.weight<T>(0), part.written<T>(0).row_range(run.begin, run.end),
                             part.written<T>(1).row_range(run.begin, run.end)});
          is_done = is_done && math::norm_and_rotate<T>(exec, norm, rows_of(run), heads);
        });
        if (!is_done) a.run_parts(exec);
      })});
  const bool is_in_pieces = leaf_.tensor_pieces() > 1;
  if (leaf_.is_cut() || leaf_.decodes() || is_in_pieces || first->second.has_own_weights) return;
  const std::int64_t leaves = leaf_.leaves();
  backward.fused = std::make_shared<FusedKernel>(FusedKernel{
      gradients, make_kernel([=, leaf = leaf_](const Exec& exec, const Arguments& a) {
        std::vector<math::NormedHeadGradients<T>> heads;
        for (int i = 0; i < count; ++i) {
          const std::optional<Arguments> sums = a.part(1 + 3 * i), input = a.part(2 + 3 * i);
          if (!input) return a.run_parts(exec);
          heads.push_back({input->weight<T>(0), input->read<T>(0), input->written<T>(0),
                           sums ? sums->gradient<Compute>(0) : View<Compute*>(),
                           sums ? sums->scratch<Compute>(0) : View<Compute*>()});
        }
        for_each_run(leaf, a, heads.front().kept.rows(), [&](const RunOfRows& run) {
          if (!math::rotate_and_norm_backward<T>(exec, norm, rows_of(run), heads, leaves))
            a.run_parts(exec);
        });
      })});
}

#define OSTRAKON_INSTANTIATE(T)                                                                \
  template std::vector<int> Operations<T>::rotary(const std::vector<int>&, const std::string&, \
                                                  std::int64_t, const math::RotaryFrequencies&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model::graph
