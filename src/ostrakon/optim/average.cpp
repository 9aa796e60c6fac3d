// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/vectors.hpp>
#include <ostrakon/optim/average.hpp>

namespace ostrakon::optim {

template <class Space>
void update_averages(const math::ExecutorFor<Space>& where, double decay,
                     View<const float*, Space> parameters, View<float*, Space> averages) {
  math::require_equal_sizes("average", parameters.size(), averages.size());
  constexpr std::int64_t per_item =
      math::per_item_on<math::ExecutorFor<Space>>(4096, math::vector_elements<float>());
  const auto share = static_cast<float>(1.0 - decay);
  const std::int64_t size = averages.size();
  math::for_each_item(
      where, "average", math::items_for(size, per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t begin = item * per_item, end = math::smaller(begin + per_item, size);
        for (std::int64_t i = begin; i < end; ++i)
          averages[i] += share * (parameters[i] - averages[i]);
      });
}

template void update_averages<OnDevice>(const math::ExecutorFor<OnDevice>&, double,
                                        View<const float*, OnDevice>, View<float*, OnDevice>);
template void update_averages<OnHost>(const math::ExecutorFor<OnHost>&, double,
                                      View<const float*, OnHost>, View<float*, OnHost>);

}  // namespace ostrakon::optim
