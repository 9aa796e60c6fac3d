// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/text/jinja/tree.hpp>
#include <string>

namespace ostrakon::texts::jinja {

/// Reads a template. Throws Error with `file`, the line, and the name of what is not implemented.
Tree parse(const std::string& source, const std::string& file);

}  // namespace ostrakon::texts::jinja
