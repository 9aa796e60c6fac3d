// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/free_name.hpp>

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>

namespace ostrakon {

std::string free_name(const std::string& start, const std::string& end) {
  std::string name = start + end;
  for (int number = 2; type_of_name(name) != std::filesystem::file_type::not_found; ++number)
    name = text(start, "-", number, end);
  return name;
}

}  // namespace ostrakon
