// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/value.hpp>
#include <ostrakon/simulate/stack.hpp>
#include <string>

namespace ostrakon::config {

/// Reads the text of a stack file (machines/stacks/*.yaml): YAML with the root key `ostrakon` and
/// the section `stack`, see docs/machine-files.md. Unknown keys and impossible values throw Error,
/// which begins with `name` and gives the key, its value and what was expected.
simulate::Stack read_stack(const std::string& text, const std::string& name);

/// Reads the section `stack` of a file `name`.
simulate::Stack read_stack(const DeckSection& section, const std::string& name);

}  // namespace ostrakon::config
