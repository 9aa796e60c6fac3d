// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

/// A word for a POSIX shell, quoted where it has to be.
std::string shell_word(const std::string& text);

}  // namespace ostrakon
