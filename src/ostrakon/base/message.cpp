// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/message.hpp>

#include <ostrakon/base/format.hpp>

namespace ostrakon {

namespace {

std::string fit_to_screen(const std::string& message) {
  constexpr std::size_t most = 2000;  // bytes
  return without_middle(printable_lines(message), most);
}

}  // namespace

std::string error_message(const std::string& name, const std::string& what) {
  return fit_to_screen(name + ": error: " + what);
}

std::string error_message(const std::string& name, int rank, const std::string& what) {
  return fit_to_screen(name + ": error on rank " + std::to_string(rank) + ": " + what);
}

}  // namespace ostrakon
