// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

/// Returns the message of a program that ends with status 1: "<name>: error: <what>", escaped for a
/// terminal, and shortened in the middle if a value in it is very long.
std::string error_message(const std::string& name, const std::string& what);

/// Returns the message of one rank: "<name>: error on rank <rank>: <what>".
std::string error_message(const std::string& name, int rank, const std::string& what);

}  // namespace ostrakon
