// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/text/jinja/builtins.hpp>
#include <vector>

namespace ostrakon::texts::jinja {

/// Filters of texts, numbers and single values.
const std::vector<Filter>& value_filters();
/// Filters of lists and dicts.
const std::vector<Filter>& sequence_filters();

}  // namespace ostrakon::texts::jinja
