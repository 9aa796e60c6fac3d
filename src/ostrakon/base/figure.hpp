// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/text.hpp>
#include <string>

namespace ostrakon {

/// Returns a line for tools that read results from the screen, such as ReFrame, Ramble and JUBE:
/// "figure: NAME VALUE UNIT", with six digits. Names have no spaces, and are stable across
/// versions.
inline std::string figure(const std::string& name, double value, const std::string& unit) {
  return text("figure: ", name, " ", value, " ", unit, "\n");
}

}  // namespace ostrakon
