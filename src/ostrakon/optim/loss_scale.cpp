// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/optim/loss_scale.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>

namespace ostrakon::optim {
namespace {

void require_power_of_two(const char* name, double value) {
  int exponent = 0;
  require(std::isfinite(value) && value > 0.0 && std::frexp(value, &exponent) == 0.5, name, " is ",
          value, "; expected a power of two");
}

void require_between(const char* name, double value, const LossScaleSettings& settings) {
  require_power_of_two(name, value);
  require(settings.smallest <= value && value <= settings.largest, name, " is ", value,
          "; expected from loss_scale.smallest, ", settings.smallest, ", to loss_scale.largest, ",
          settings.largest);
}

}  // namespace

LossScale::LossScale(const LossScaleSettings& settings)
    : settings_(settings), state_{settings.initial, 0} {
  require_power_of_two("loss_scale.smallest", settings.smallest);
  require_power_of_two("loss_scale.largest", settings.largest);
  require_between("loss_scale.initial", settings.initial, settings);
  require(settings.growth_interval >= 1, "loss_scale.growth_interval is ", settings.growth_interval,
          "; expected at least 1");
}

bool LossScale::update(bool finite) {
  if (!finite) {
    const bool can_halve = state_.scale > settings_.smallest;
    state_ = {std::max(state_.scale / 2, settings_.smallest), 0};
    return can_halve;
  }
  if (++state_.good_steps >= settings_.growth_interval)
    state_ = {std::min(state_.scale * 2, settings_.largest), 0};
  return true;
}

void LossScale::restore(const State& state) {
  require_between("the restored loss scale", state.scale, settings_);
  require(state.good_steps >= 0, "the restored count of good steps of the loss scale is ",
          state.good_steps, "; expected at least 0");
  state_ = state;
}

}  // namespace ostrakon::optim
