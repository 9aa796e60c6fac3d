// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

/// What a program says before it leaves with status 1: "<name>: error: <what>", as a terminal may
/// show it, and without its middle where a value that it names has filled pages.
std::string error_message(const std::string& name, const std::string& what);

/// The message of one rank: "<name>: error on rank <rank>: <what>".
std::string error_message(const std::string& name, int rank, const std::string& what);

}  // namespace ostrakon
