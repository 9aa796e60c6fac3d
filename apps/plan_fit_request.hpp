// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/fit.hpp>

namespace ostrakon::apps {

/// The request of `ostrakon-plan --fit`.
struct FitRequest {
  plan::Room room;
  int ranks = 1;
  int ranks_per_node = 1;
  bool any_precision = false;
  plan::Rates rates;
};

}  // namespace ostrakon::apps
