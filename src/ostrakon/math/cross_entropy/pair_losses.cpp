// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/cross_entropy/pair_losses.hpp>

#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {

template <class C>
void pair_losses(const Exec& exec, double beta, View<const C*> token_losses,
                 View<const std::int32_t*> document_begins, View<const float*> references,
                 View<C**> outputs, View<C*> factors) {
  constexpr char name[] = "pair_losses";
  const std::int64_t pairs = outputs.columns(), tokens = token_losses.size() / pairs;
  require_shape(name, "outputs", outputs, pair_outputs, pairs);
  require_size(name, "token_losses", token_losses, pairs * tokens);
  require_size(name, "document_begins", document_begins, pairs * tokens);
  require_size(name, "references", references, 2 * pairs);
  require_size_if_any(name, "factors", factors, pairs * tokens);
  for_each_row(
      exec, name, pairs, tokens, KOKKOS_LAMBDA(const Row& row, std::int64_t pair) {
        const auto losses = token_losses.range(pair * tokens, (pair + 1) * tokens);
        const auto begins = document_begins.range(pair * tokens, (pair + 1) * tokens);
        const auto log_ratio = [&](bool of_chosen) {
          const double sum = row.template sum<double>(tokens, [&](std::int64_t i) {
            return (begins[i] == 0) == of_chosen ? static_cast<double>(losses[i]) : 0.0;
          });
          return static_cast<C>(-sum) - static_cast<C>(references[2 * pair + (of_chosen ? 0 : 1)]);
        };
        const C chosen = log_ratio(true), rejected = log_ratio(false);
        const double margin = beta * (static_cast<double>(chosen) - static_cast<double>(rejected));
        const double small = exp(margin < 0.0 ? margin : -margin);  // never overflows
        row.once([&] {
          const double loss = log(1.0 + small) + (margin < 0.0 ? -margin : 0.0);
          outputs(pair_loss, pair) = static_cast<C>(loss);
          outputs(chosen_log_ratio, pair) = chosen;
          outputs(rejected_log_ratio, pair) = rejected;
          outputs(is_preferred, pair) = chosen > rejected ? C(1) : C(0);
        });
        if (!factors) return;
        const double slope = beta * (margin < 0.0 ? 1.0 : small) / (1.0 + small);
        const C of_chosen = static_cast<C>(slope);
        const auto to = factors.range(pair * tokens, (pair + 1) * tokens);
        row.loop(tokens, [&](std::int64_t i) { to[i] = begins[i] == 0 ? of_chosen : -of_chosen; });
      });
}

#define OSTRAKON_INSTANTIATE(C)                                                                \
  template void pair_losses<C>(const Exec&, double, View<const C*>, View<const std::int32_t*>, \
                               View<const float*>, View<C**>, View<C*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
