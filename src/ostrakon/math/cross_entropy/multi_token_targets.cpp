// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/cross_entropy/multi_token_targets.hpp>

#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {
namespace {

constexpr char kernel_name[] = "multi_token_targets";

}  // namespace

template <class C>
void stack_targets(const Exec& exec, const MultiTokenTargets& further,
                   View<const std::int32_t*> targets, View<std::int32_t*> words, View<C*> factors) {
  const std::int64_t depths = further.depths, run = further.run, tokens = further.tokens;
  require_size(kernel_name, "words", words, depths * targets.size());
  require_size(kernel_name, "factors", factors, depths * targets.size());
  const double part = depths > 1 ? further.factor / static_cast<double>(depths - 1) : 0.0;
  for_each_item(
      exec, kernel_name, words.size(), KOKKOS_LAMBDA(std::int64_t i) {
        const std::int64_t depth = i / run % depths, row = i / (run * depths) * run + i % run;
        const bool predicts = row % tokens + depth < tokens;
        words[i] = predicts ? targets[row + depth] : -1;
        const double of_depth =
            depth == 0 ? 1.0
                       : part * static_cast<double>(tokens) / static_cast<double>(tokens - depth);
        factors[i] = predicts ? static_cast<C>(of_depth) : C(0);
      });
}

template <class C>
void unstack_losses(const Exec& exec, const MultiTokenTargets& further, View<const C*> stacked,
                    std::int64_t first, View<C*> losses) {
  const std::int64_t depths = further.depths, run = further.run, tokens = further.tokens;
  const std::int64_t count = losses.size() / depths;
  for_each_item(
      exec, kernel_name, losses.size(), KOKKOS_LAMBDA(std::int64_t i) {
        const std::int64_t depth = i / count, row = first + i % count;
        const bool predicts = row % tokens + depth < tokens;
        losses[i] = predicts ? stacked[row / run * run * depths + depth * run + row % run] : C(0);
      });
}

#define OSTRAKON_INSTANTIATE(C)                                                                    \
  template void stack_targets<C>(const Exec&, const MultiTokenTargets&, View<const std::int32_t*>, \
                                 View<std::int32_t*>, View<C*>);                                   \
  template void unstack_losses<C>(const Exec&, const MultiTokenTargets&, View<const C*>,           \
                                  std::int64_t, View<C*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
