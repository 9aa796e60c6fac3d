// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/text/jinja/tree.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::texts::jinja {

/// What a template makes of its variables.
struct Rendered {
  std::string text;
  /// The bytes [begin, end) that blocks `generation` printed.
  std::vector<std::pair<std::size_t, std::size_t>> generated;
};

/// Runs a template. `variables`: a dict. Throws Error with `file` and line.
Rendered render(const Tree& tree, const Value& variables, const std::string& file);

}  // namespace ostrakon::texts::jinja
