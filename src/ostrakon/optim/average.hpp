// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/view.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::optim {

/// One step of an exponential moving average (EMA): averages += (1 - decay) * (parameters -
/// averages), element by element, so that any partition gives the same bits. `decay` is from 0
/// to 1. Instantiated for float in both spaces. Throws Error if sizes differ.
template <class Space>
void update_averages(const math::ExecutorFor<Space>& where, double decay,
                     View<const float*, Space> parameters, View<float*, Space> averages);

}  // namespace ostrakon::optim
